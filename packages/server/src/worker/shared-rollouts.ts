import { randomUUID } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import { rolloutIdOf, type DriveRollout, type DriveRolloutOptions } from "@osmosis/controller";
import type { RolloutRecord, ShareTask } from "@osmosis/protocol";
import type { SharingLink } from "./share-link.ts";

/**
 * Spreads the rollouts of a run over workers. A rollout goes
 *
 *     given → here                       (this worker drives it)
 *         ↘ offered → recorded           (another worker has brought it to its end)
 *                ↘ here                  (nobody works on its share, and there is a place)
 *
 * Of n rollouts this worker drives n / workers at once, and offers the others in shares of half that. Who works on what
 * is the platform's business: a share whose worker has died is open again, for another worker or for this one.
 */
export type SharedRollouts = AsyncDisposable & {
  readonly drive: DriveRollout;
  /** Whether another worker has recorded the rollout: then it is durable already. */
  readonly isRecorded: (rollout: RolloutRecord) => boolean;
};

const COLLECT_WAIT_MS = 4000;

type Entry = {
  readonly id: string;
  readonly options: DriveRolloutOptions;
  readonly resolve: (record: RolloutRecord) => void;
  readonly reject: (reason: unknown) => void;
};

export function openSharedRollouts(parts: {
  readonly link: SharingLink;
  /** Workers at most, this one included. */
  readonly workers: number;
  /** Drives a rollout in this process. */
  readonly drive: DriveRollout;
  readonly signal: AbortSignal;
}): SharedRollouts {
  const { link, workers } = parts;
  const closing = new AbortController();
  const signal = AbortSignal.any([parts.signal, closing.signal]);
  const recorded = new Set<string>();
  /** Neither here nor ended, by id. */
  const away = new Map<string, Entry>();
  /** Not offered yet. */
  let outbox: Entry[] = [];
  /** What is left of each share that was offered. */
  const shares = new Map<string, Set<string>>();
  let here = 0;
  /** How many are driven here at once; it falls when nothing is left. */
  let places = 1;
  let open = 0;
  let after: number | null = null;
  let work: Promise<void> = Promise.resolve();
  let isCollecting = false;

  function begin(entry: Entry): void {
    here += 1;
    void parts
      .drive(entry.options)
      .then(entry.resolve, entry.reject)
      .finally(() => {
        here -= 1;
        if (here + away.size === 0) places = 1;
        schedule();
      });
  }

  /** One thing after the other: offering, and taking back. */
  function schedule(): void {
    work = work.then(() => step()).catch(fail);
  }

  async function step(): Promise<void> {
    // All that is given in one go is divided as a whole.
    await nextTurn();
    for (const entry of outbox.splice(0, Math.max(0, places - here))) {
      away.delete(entry.id);
      begin(entry);
    }
    if (outbox.length > 0) await offer(outbox.splice(0));
    const isWanted = (): boolean => here < places && open > 0;
    for (let taken = isWanted(); taken; taken = isWanted()) {
      if (!(await takeBack())) break;
    }
  }

  async function offer(entries: readonly Entry[]): Promise<void> {
    after ??= (await link.collectShared({ after: null, known_open: 0, wait_ms: 0 }, signal)).after;
    const size = Math.max(1, Math.ceil((here + away.size) / (workers * 2)));
    const offered = chunks(entries, size).flatMap((chunk) => {
      const first = chunk[0];
      if (first === undefined) return [];
      const { phase, step } = first.options.identity;
      return [{ share_id: randomUUID(), phase, step, tasks: chunk.map(taskOf) }];
    });
    await link.publishShares(offered, signal);
    for (const { share_id: id, tasks } of offered) {
      shares.set(id, new Set(tasks.map(({ rollout_id }) => rollout_id)));
    }
    open += offered.length;
    if (!isCollecting) void collect().catch(fail);
  }

  /** The newest share that nobody works on; false when there is none. */
  async function takeBack(): Promise<boolean> {
    for (const [id, left] of [...shares].reverse()) {
      const taken = await link.withdrawShare(id, signal);
      if (taken === null) continue;
      shares.delete(id);
      open = Math.max(0, open - 1);
      // What another worker recorded of it comes by `collect`.
      const entries = taken.flatMap((rolloutId) => away.get(rolloutId) ?? []);
      for (const entry of entries) {
        left.delete(entry.id);
        away.delete(entry.id);
        begin(entry);
      }
      if (entries.length > 0) return true;
    }
    open = 0;
    return false;
  }

  async function collect(): Promise<void> {
    isCollecting = true;
    try {
      while (away.size > 0) {
        const answer = await link.collectShared(
          { after, known_open: open, wait_ms: COLLECT_WAIT_MS },
          signal,
        );
        after = answer.after;
        open = answer.open;
        for (const record of answer.rollouts) take(record);
        if (open > 0) schedule();
      }
    } finally {
      isCollecting = false;
    }
  }

  function take(record: RolloutRecord): void {
    const id = record.rollout_id.replace(/-a\d+$/, "");
    const entry = away.get(id);
    if (entry === undefined) return;
    recorded.add(record.rollout_id);
    away.delete(id);
    for (const [shareId, left] of shares) {
      if (left.delete(id) && left.size === 0) shares.delete(shareId);
    }
    entry.resolve(record);
    if (here + away.size === 0) places = 1;
  }

  /** Nothing that is away can come back. */
  function fail(error: unknown): void {
    for (const entry of away.values()) entry.reject(error);
    away.clear();
    outbox = [];
    shares.clear();
  }

  return {
    isRecorded: ({ rollout_id: id }) => recorded.has(id),
    drive(options) {
      const { promise, resolve, reject } = Promise.withResolvers<RolloutRecord>();
      const id = rolloutIdOf({ ...options.identity, rowIndex: options.row.row_index }, 0);
      const entry: Entry = { id, options, resolve, reject };
      if (options.signal.aborted) {
        reject(options.signal.reason);
        return promise;
      }
      const onAbort = (): void => {
        if (!away.delete(id)) return;
        outbox = outbox.filter((one) => one !== entry);
        reject(options.signal.reason);
      };
      options.signal.addEventListener("abort", onAbort, { once: true });
      away.set(id, entry);
      outbox.push(entry);
      places = Math.max(places, Math.ceil((here + away.size) / workers));
      schedule();
      return promise.finally(() => options.signal.removeEventListener("abort", onAbort));
    },
    async [Symbol.asyncDispose]() {
      closing.abort(new Error("the run has ended"));
      await work;
    },
  };
}

function taskOf({ id, options }: Entry): ShareTask {
  const { server: _server, gateway: _gateway, clock: _clock, signal: _signal, row, ...rest } = options;
  // Through JSON, as it travels: what is undefined is not there.
  return {
    rollout_id: id,
    row_index: row.row_index,
    options: JSON.parse(JSON.stringify(rest)) as ShareTask["options"],
  };
}

function chunks<Item>(items: readonly Item[], size: number): Item[][] {
  const result: Item[][] = [];
  for (let from = 0; from < items.length; from += size) result.push(items.slice(from, from + size));
  return result;
}
