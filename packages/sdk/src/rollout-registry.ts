/**
 * What a rollout server knows about its rollouts.
 *
 *   queued --> running --> grading --> success | failure | cancelled --(kept for a while)--> forgotten
 *
 * A rollout with a lease is cancelled when nobody polls for longer than the lease; a poll that is held open keeps it. A
 * final state never changes. A result that was polled is forgotten sooner: a long training run would fill the memory.
 */
import { randomBytes, timingSafeEqual } from "node:crypto";
import type { CancelDisposition, RolloutStatus } from "@osmosis/protocol";
import { OsmosisError, isFinalStatus } from "@osmosis/protocol";
import type { CancelReason, RolloutResult } from "./execution.ts";

export type RegistryTimes = {
  /** How long a rollout lives without a poll. */
  readonly leaseMs: number;
  /** How long a result is kept. */
  readonly retentionMs: number;
  /** How long a result is kept once it was polled, in case that the answer was lost. */
  readonly polledRetentionMs: number;
};

export type RolloutEntry = {
  readonly rolloutId: string;
  readonly label: string | null;
  readonly status: RolloutStatus;
  /** Undefined until the status is final. */
  readonly result: RolloutResult | undefined;
};

/** What the executor of a rollout gets to report through. */
export type RolloutHandle = {
  readonly signal: AbortSignal;
  setStatus(status: "running" | "grading"): void;
  finish(result: RolloutResult): void;
};

export type CancelSelector =
  | { readonly type: "ids"; readonly ids: readonly string[] }
  | { readonly type: "prefix"; readonly prefix: string }
  | { readonly type: "all" };

type Tracked = {
  readonly rolloutId: string;
  readonly label: string | null;
  status: RolloutStatus;
  result: RolloutResult | undefined;
  readonly abort: AbortController;
  readonly finished: PromiseWithResolvers<void>;
  readonly leaseToken: string | null;
  openPolls: number;
  leaseTimer: NodeJS.Timeout | undefined;
  forgetTimer: NodeJS.Timeout | undefined;
  polled: boolean;
};

export class RolloutRegistry {
  readonly #times: RegistryTimes;
  readonly #rollouts = new Map<string, Tracked>();

  constructor(times: RegistryTimes) {
    this.#times = times;
  }

  /**
   * Makes a rollout known. With a lease, the returned token is what polls must show.
   *
   * @throws OsmosisError `CONFLICT` when the id is known already.
   */
  admit(
    rolloutId: string,
    options: { lease: boolean; label: string | null },
  ): RolloutHandle & { leaseToken: string | null } {
    if (this.#rollouts.has(rolloutId)) {
      throw new OsmosisError("CONFLICT", `Rollout ${rolloutId} was started already.`, {
        hint: "Every rollout needs an id of its own.",
      });
    }
    const rollout: Tracked = {
      rolloutId,
      label: options.label,
      status: "queued",
      result: undefined,
      abort: new AbortController(),
      finished: Promise.withResolvers(),
      leaseToken: options.lease ? randomBytes(24).toString("base64url") : null,
      openPolls: 0,
      leaseTimer: undefined,
      forgetTimer: undefined,
      polled: false,
    };
    this.#rollouts.set(rolloutId, rollout);
    this.#renewLease(rollout);
    return {
      leaseToken: rollout.leaseToken,
      signal: rollout.abort.signal,
      setStatus: (status) => {
        if (!isFinalStatus(rollout.status)) rollout.status = status;
      },
      finish: (result) => this.#finish(rollout, result),
    };
  }

  get(rolloutId: string): RolloutEntry | undefined {
    return this.#rollouts.get(rolloutId);
  }

  /** True when the token is that of the rollout's lease. */
  ownsLease(rolloutId: string, token: string): boolean {
    const expected = this.#rollouts.get(rolloutId)?.leaseToken;
    if (expected === undefined || expected === null) return false;
    const [a, b] = [Buffer.from(expected), Buffer.from(token)];
    return a.length === b.length && timingSafeEqual(a, b);
  }

  /** Waits until the rollout is final, but not longer than `waitMs`, and holds its lease meanwhile. */
  async poll(
    rolloutId: string,
    options: { waitMs: number; signal: AbortSignal },
  ): Promise<RolloutEntry | undefined> {
    const rollout = this.#rollouts.get(rolloutId);
    if (!rollout) return undefined;
    if (!isFinalStatus(rollout.status)) await this.#waitForEnd(rollout, options);
    if (isFinalStatus(rollout.status) && !rollout.polled && !options.signal.aborted) {
      rollout.polled = true;
      this.#forgetIn(rollout, Math.min(this.#times.polledRetentionMs, this.#times.retentionMs));
    }
    return rollout;
  }

  async #waitForEnd(rollout: Tracked, options: { waitMs: number; signal: AbortSignal }): Promise<void> {
    const over = Promise.withResolvers<void>();
    const timer = setTimeout(over.resolve, options.waitMs);
    options.signal.addEventListener("abort", () => over.resolve(), { once: true });
    rollout.openPolls += 1;
    clearTimeout(rollout.leaseTimer);
    try {
      await Promise.race([rollout.finished.promise, over.promise]);
    } finally {
      clearTimeout(timer);
      rollout.openPolls -= 1;
      this.#renewLease(rollout);
    }
  }

  /** Asks rollouts to stop. Ids that were asked for and are not active are `not_found`. */
  cancel(selector: CancelSelector, reason: CancelReason = "requested"): Record<string, CancelDisposition> {
    const dispositions: Record<string, CancelDisposition> = {};
    for (const rolloutId of this.#select(selector)) {
      const rollout = this.#rollouts.get(rolloutId);
      if (!rollout || isFinalStatus(rollout.status)) {
        dispositions[rolloutId] = "not_found";
        continue;
      }
      dispositions[rolloutId] = rollout.status === "queued" ? "cancelled_queued" : "cancelled_running";
      rollout.abort.abort(reason);
    }
    return dispositions;
  }

  #active(): Tracked[] {
    return [...this.#rollouts.values()].filter((rollout) => !isFinalStatus(rollout.status));
  }

  #select(selector: CancelSelector): readonly string[] {
    switch (selector.type) {
      case "ids":
        return selector.ids;
      case "prefix":
        return this.#active().flatMap(({ rolloutId }) =>
          rolloutId.startsWith(selector.prefix) ? [rolloutId] : [],
        );
      case "all":
        return this.#active().map(({ rolloutId }) => rolloutId);
      default:
        return selector satisfies never;
    }
  }

  #renewLease(rollout: Tracked): void {
    clearTimeout(rollout.leaseTimer);
    if (rollout.leaseToken === null || rollout.openPolls > 0 || isFinalStatus(rollout.status)) return;
    rollout.leaseTimer = setTimeout(() => rollout.abort.abort("lease_expired"), this.#times.leaseMs);
    rollout.leaseTimer.unref();
  }

  #finish(rollout: Tracked, result: RolloutResult): void {
    if (isFinalStatus(rollout.status)) return;
    rollout.status = result.status;
    rollout.result = result;
    clearTimeout(rollout.leaseTimer);
    rollout.finished.resolve();
    this.#forgetIn(rollout, this.#times.retentionMs);
  }

  #forgetIn(rollout: Tracked, delayMs: number): void {
    clearTimeout(rollout.forgetTimer);
    rollout.forgetTimer = setTimeout(() => this.#rollouts.delete(rollout.rolloutId), delayMs);
    rollout.forgetTimer.unref();
  }
}
