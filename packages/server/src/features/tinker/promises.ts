import { setTimeout as delay } from "node:timers/promises";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type { Log } from "../../platform.ts";
import { TurnNeverCame } from "./sequence.ts";

/** Requests that one person may have under way. */
const MAX_PENDING = 2048;

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

/** Work under way and its results, by an id that the request determines: the same request is the same promise. */
export function createPromises({ now, log }: { readonly now: () => Date; readonly log: Log }) {
  const entries = new Map<string, Entry>();

  return {
    has: (id: string): boolean => entries.get(id)?.isRepeatable === false,

    /**
     * Starts a task under a new id; its failure is a result, too.
     *
     * @throws OsmosisError `RATE_LIMITED` when its owner has too many under way.
     */
    start(id: string, owner: string, task: () => Promise<Result>): void {
      const pending = [...entries.values()].filter(
        (one) => one.forgetAt === undefined && one.owner === owner,
      );
      if (pending.length >= MAX_PENDING) {
        throw new OsmosisError("RATE_LIMITED", `You have ${pending.length} requests under way.`, {
          hint: "Wait for some of them to end.",
        });
      }
      const settle = (outcome: Outcome) => {
        entry.outcome = outcome;
        entry.forgetAt = now().getTime() + KEEP_MS;
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
        outcome: { type: "pending" },
        forgetAt: undefined,
        isRepeatable: false,
        settled: run(),
      };
      entries.set(id, entry);
    },

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
