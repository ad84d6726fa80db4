import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type { Log } from "../../platform.ts";
import { TurnNeverCame } from "./sequence.ts";

/** What one person may have under way, together: a request is in memory until its turn has come. */
const MAX_PENDING = { count: 2048, bytes: 256 * 1024 * 1024 };

/** What a promise ends with. `protobuf` gives the same content for whoever asked for it. */
export type Result = { readonly body: object; readonly protobuf?: () => Uint8Array };

/** `user`: the request is wrong and will stay so. */
export type Failed = { readonly error: string; readonly category: "user" | "server" };

export type Outcome =
  | { readonly type: "done"; readonly result: Result }
  | { readonly type: "failed"; readonly failure: Failed }
  | { readonly type: "pending" }
  /** Never made here, or forgotten. */
  | { readonly type: "expired" };

type Entry = {
  readonly owner: string;
  readonly fingerprint: string;
  readonly settled: Promise<void>;
  outcome: Outcome;
  /** When it is forgotten, in milliseconds; undefined while it is under way. */
  forgetAt: number | undefined;
  /** The same request may be executed after all. */
  isRepeatable: boolean;
};

/** How long a result waits for its client. */
const KEEP_MS = 15 * 60_000;

/** How long it is kept after it was sent, for a client whose connection broke meanwhile. */
const KEEP_SENT_MS = 60_000;

export type Promises = ReturnType<typeof createPromises>;

/** Work under way and its results, by an id that the request determines: the same request is the same promise. */
export function createPromises({
  now,
  log,
  maxPending = MAX_PENDING,
}: {
  readonly now: () => Date;
  readonly log: Log;
  readonly maxPending?: { readonly count: number; readonly bytes: number };
}) {
  const entries = new Map<string, Entry>();
  /** By their owners, what is under way. */
  const pending = new Map<string, { count: number; bytes: number }>();

  return {
    /**
     * Starts the task of a request, unless it was started before; its failure is a result, too. One that is awaited is
     * started however much its owner has under way: nothing of that may end without it.
     *
     * @throws OsmosisError `CONFLICT` when the id belongs to another request; `RATE_LIMITED` when its owner has too much
     * under way.
     */
    start(
      {
        id,
        owner,
        request,
        isAwaited = false,
      }: {
        readonly id: string;
        readonly owner: string;
        readonly request: object;
        readonly isAwaited?: boolean;
      },
      task: () => Promise<Result>,
    ): void {
      const { fingerprint, sizeBytes } = measured(request);
      const known = entries.get(id);
      if (known?.isRepeatable === false) {
        if (known.fingerprint === fingerprint) return;
        throw new OsmosisError("CONFLICT", `The number of the request ${id} was used for another request.`, {
          hint: "Repeat a request as it was, or give it the next number.",
        });
      }
      const own = pending.get(owner) ?? { count: 0, bytes: 0 };
      if (!isAwaited && (own.count >= maxPending.count || own.bytes + sizeBytes > maxPending.bytes)) {
        throw new OsmosisError(
          "RATE_LIMITED",
          `You have ${own.count} requests of ${Math.ceil(own.bytes / 1024 ** 2)} MiB under way.`,
          { hint: "Wait for some of them to end." },
        );
      }
      own.count += 1;
      own.bytes += sizeBytes;
      pending.set(owner, own);
      const settle = (outcome: Outcome) => {
        entry.outcome = outcome;
        entry.forgetAt = now().getTime() + KEEP_MS;
        own.count -= 1;
        own.bytes -= sizeBytes;
        if (own.count === 0) pending.delete(owner);
      };
      const run = async () => {
        // First the entry, then the work: a task that fails at once would find none.
        await Promise.resolve();
        try {
          settle({ type: "done", result: await task() });
        } catch (error) {
          entry.isRepeatable = error instanceof TurnNeverCame;
          settle({ type: "failed", failure: failureOf(error) });
        }
      };
      const entry: Entry = {
        owner,
        fingerprint,
        outcome: { type: "pending" },
        forgetAt: undefined,
        isRepeatable: false,
        settled: run(),
      };
      entries.set(id, entry);
    },

    /** Whether somebody's request is under way, or its result is kept. */
    isKnown: (id: string, owner: string): boolean => entries.get(id)?.owner === owner,

    /** The outcome, waiting for it up to `waitMs`. */
    async wait(id: string, owner: string, waitMs: number, signal: AbortSignal): Promise<Outcome> {
      const entry = entries.get(id);
      if (entry === undefined || entry.owner !== owner) return { type: "expired" };
      const timer = new AbortController();
      const stop = AbortSignal.any([timer.signal, signal]);
      await Promise.race([
        entry.settled,
        delay(waitMs, undefined, { signal: stop, ref: false }).catch(() => {}),
      ]);
      timer.abort();
      if (entry.outcome.type !== "pending") entry.forgetAt = now().getTime() + KEEP_SENT_MS;
      return entry.outcome;
    },

    /** Forgets what has been kept for long enough. */
    sweep(): void {
      const time = now().getTime();
      for (const [id, { forgetAt }] of entries)
        if (forgetAt !== undefined && forgetAt <= time) entries.delete(id);
    },
  };

  function failureOf(error: unknown): Failed {
    if (error instanceof OsmosisError && error.code !== "INTERNAL") {
      const hint = error.hint === undefined ? "" : ` ${error.hint}`;
      return { error: `${error.message}${hint}`, category: error.code === "STORAGE" ? "server" : "user" };
    }
    log({ level: "error", message: `A request of the trainer failed: ${errorMessage(error)}` });
    return { error: "The trainer failed to answer this request; its log has the cause.", category: "server" };
  }
}

/** Tells a request from others, and how long its JSON is. */
function measured(request: object): { fingerprint: string; sizeBytes: number } {
  const text = JSON.stringify(request);
  return { fingerprint: createHash("sha256").update(text).digest("base64"), sizeBytes: text.length };
}
