import { OsmosisError } from "@osmosis/protocol";

/** How far ahead of its turn a request may arrive. */
const MAX_AHEAD = 1024;

export type Sequence = ReturnType<typeof createSequence>;

/** Runs numbered tasks strictly in the order of their numbers, from 1 on without a gap, whenever they arrive. */
export function createSequence() {
  const waiting = new Map<number, () => void>();
  let next = 1;
  let last: Promise<unknown> = Promise.resolve();
  let closed: OsmosisError | undefined;
  const pending = new Set<(reason: OsmosisError) => void>();

  return {
    /** Whether the task with this number has been let through before. */
    isPast: (number: number): boolean => number < next,

    run<T>(number: number, task: () => Promise<T>): Promise<T> {
      if (closed !== undefined) return Promise.reject(closed);
      if (number < next || number > next + MAX_AHEAD) {
        return Promise.reject(
          new OsmosisError("VALIDATION", `seq_id ${number} is out of order; the next one is ${next}.`),
        );
      }
      return new Promise<T>((resolve, reject) => {
        pending.add(reject);
        waiting.set(number, () => {
          const turn = last.then(() => {
            if (closed !== undefined) throw closed;
            return task();
          });
          last = turn.catch(() => {});
          void turn.then(resolve, reject).finally(() => pending.delete(reject));
        });
        for (let start = waiting.get(next); start !== undefined; start = waiting.get(next)) {
          waiting.delete(next);
          next += 1;
          start();
        }
      });
    },

    /** Fails what waits; resolves when what runs has ended. */
    async close(reason: OsmosisError): Promise<void> {
      closed = reason;
      waiting.clear();
      await last;
      for (const reject of pending) reject(reason);
    },
  };
}
