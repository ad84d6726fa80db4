import type { Clock } from "@osmosis/controller";
import { errorMessage, type LogLevel } from "@osmosis/protocol";
import { TrackerRefused, type TrackedEnd, type TrackedStep, type Tracker } from "./tracker.ts";

/**
 * Brings the steps of a run to a tracker, beside the run: it can neither fail it nor slow it down. Nothing waits for a
 * step to arrive; a call has a deadline; steps that wait are bounded. A tracker that does not answer is asked again a few
 * times, one that refuses is not, and then the reporter says so once and does nothing any more.
 */
export type MetricReporter = AsyncDisposable & {
  /** Takes a committed step; returns at once. */
  add(step: TrackedStep): void;
  /** Brings what still waits, and tells the end of the run; takes a few seconds at most. */
  end(status: TrackedEnd): Promise<void>;
};

const CALL_MS = 10_000;
/** How long the end of a run may wait for its tracker. */
const END_MS = 5000;
const TRIES = 5;
const FIRST_PAUSE_MS = 500;
/** Steps that wait at most; then the oldest are left out, and told. */
const CAPACITY = 1000;
const BATCH = 100;

type Limits = {
  readonly callMs: number;
  readonly endMs: number;
  readonly firstPauseMs: number;
  readonly capacity: number;
};

export function openMetricReporter(options: {
  readonly tracker: Tracker;
  /** Steps of an earlier life of the run after the given one. */
  readonly stepsAfter: (step: number, signal: AbortSignal) => Promise<readonly TrackedStep[]>;
  readonly log: (level: LogLevel, message: string) => void;
  readonly clock: Clock;
  readonly limits?: Partial<Limits>;
}): MetricReporter {
  const { tracker, log, clock } = options;
  const limits: Limits = {
    callMs: CALL_MS,
    endMs: END_MS,
    firstPauseMs: FIRST_PAUSE_MS,
    capacity: CAPACITY,
    ...options.limits,
  };
  const stop = new AbortController();
  let waiting: TrackedStep[] = [];
  let leftOut = 0;
  let ending: TrackedEnd | undefined;
  let wake = Promise.withResolvers<void>();

  /** Repeats a call that gets no answer. */
  async function patiently<T>(call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await call(AbortSignal.any([stop.signal, AbortSignal.timeout(limits.callMs)]));
      } catch (error) {
        stop.signal.throwIfAborted();
        if (error instanceof TrackerRefused || attempt === TRIES) throw error;
        await clock.sleep(limits.firstPauseMs * 2 ** (attempt - 1), stop.signal);
      }
    }
  }

  async function work(): Promise<void> {
    let { lastStep } = await patiently((signal) => tracker.open(signal));
    log(
      "info",
      `The metrics go to ${tracker.name}, too${lastStep === 0 ? "" : `, from step ${lastStep + 1} on`}.`,
    );
    const earlier = await options.stepsAfter(lastStep, stop.signal).catch((error: unknown) => {
      stop.signal.throwIfAborted();
      log("warning", `The earlier steps are left out in ${tracker.name}: ${errorMessage(error)}`);
      return [];
    });
    waiting = [...earlier, ...waiting];
    for (;;) {
      const batch = waiting
        .splice(0, BATCH)
        .filter(({ step }) => step > lastStep)
        .sort((a, b) => a.step - b.step);
      const steps = batch.filter(({ step }, index) => step !== batch[index - 1]?.step);
      if (steps.length > 0) await patiently((signal) => tracker.add(steps, signal));
      lastStep = steps.at(-1)?.step ?? lastStep;
      if (waiting.length > 0) continue;
      if (ending !== undefined) break;
      await wake.promise;
      stop.signal.throwIfAborted();
      wake = Promise.withResolvers();
    }
    if (leftOut > 0)
      log("warning", `${leftOut} steps are missing in ${tracker.name}: it took them too slowly.`);
    const status = ending;
    await patiently((signal) => tracker.end(status, signal));
  }

  let isOver = false;
  const working = work()
    .catch((error: unknown) => {
      if (stop.signal.aborted) return;
      log(
        "warning",
        `${tracker.name} gets no more metrics of this run, which goes on: ${errorMessage(error)}`,
      );
    })
    .finally(() => {
      isOver = true;
      waiting = [];
    });

  return {
    add(step) {
      if (isOver) return;
      waiting.push(step);
      if (waiting.length > limits.capacity) {
        waiting.shift();
        leftOut += 1;
      }
      wake.resolve();
    },
    async end(status) {
      ending = status;
      wake.resolve();
      const late = Symbol("late");
      const timer = new AbortController();
      const first = await Promise.race([
        working,
        clock.sleep(limits.endMs, timer.signal).then(
          () => late,
          () => undefined,
        ),
      ]);
      timer.abort();
      if (first !== late) return;
      log(
        "warning",
        `${tracker.name} was too slow at the end of the run: its last steps may be missing there.`,
      );
      stop.abort();
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      wake.resolve();
      await working;
    },
  };
}
