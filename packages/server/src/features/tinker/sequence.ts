import { OsmosisError } from "@osmosis/protocol";

/** How far ahead of its turn a request may arrive. */
const MAX_AHEAD = 1024;

/** How long a request waits for one before it that does not come. */
const MAX_GAP_MS = 5 * 60_000;

export type Sequence = ReturnType<typeof createSequence>;

type Waiting = {
  readonly start: () => void;
  readonly reject: (reason: OsmosisError) => void;
  readonly since: number;
};

/**
 * A request whose turn never came. It was not executed, so the same request may be sent again, and is then a new
 * promise.
 */
export class TurnNeverCame extends OsmosisError {}

/** Runs numbered tasks strictly in the order of their numbers, from 1 on without a gap, whenever they arrive. */
export function createSequence({ now }: { readonly now: () => Date }) {
  const waiting = new Map<number, Waiting>();
  let next = 1;
  let last: Promise<unknown> = Promise.resolve();
  let closed: OsmosisError | undefined;
  const running = new Set<(reason: OsmosisError) => void>();

  return {
    /** Whether the task with this number has been let through before. */
    isPast: (number: number): boolean => number < next,

    /** Whether nothing goes on before this number comes: it is its turn, and what came before it has ended. */
    isAwaited: (number: number): boolean => number === next && running.size === 0,

    run<T>(number: number, task: () => Promise<T>): Promise<T> {
      if (closed !== undefined) return Promise.reject(closed);
      if (number < next || number > next + MAX_AHEAD) {
        return Promise.reject(
          new OsmosisError("VALIDATION", `seq_id ${number} is out of order; the next one is ${next}.`),
        );
      }
      return new Promise<T>((resolve, reject) => {
        const start = () => {
          const turn = last.then(() => {
            if (closed !== undefined) throw closed;
            return task();
          });
          last = turn.catch(() => {});
          running.add(reject);
          void turn.then(resolve, reject).finally(() => running.delete(reject));
        };
        waiting.set(number, { start, reject, since: now().getTime() });
        for (let first = waiting.get(next); first !== undefined; first = waiting.get(next)) {
          waiting.delete(next);
          next += 1;
          first.start();
        }
      });
    },

    /** Fails what has waited too long for a number that did not come. */
    expire(): void {
      const limit = now().getTime() - MAX_GAP_MS;
      for (const [number, { reject, since }] of waiting) {
        if (since > limit) continue;
        waiting.delete(number);
        reject(
          new TurnNeverCame(
            "VALIDATION",
            `seq_id ${number} waited ${MAX_GAP_MS / 60_000} minutes for ${next}, which was never sent.`,
            { hint: `Send ${next} first, and ${number} again; numbers have no gaps.` },
          ),
        );
      }
    },

    /** Fails what waits; resolves when what runs has ended. */
    async close(reason: OsmosisError): Promise<void> {
      closed = reason;
      for (const { reject } of waiting.values()) reject(reason);
      waiting.clear();
      await last;
      for (const reject of running) reject(reason);
    },
  };
}
