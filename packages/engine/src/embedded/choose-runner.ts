import type { CallFlags } from "../graph/native-calls.ts";
import { loadRuntime } from "../graph/session.ts";
import type { Weights } from "../safetensors.ts";
import { localRunner, type BatchRunner, type Feeds } from "../training/batch-runner.ts";
import { parallelRunner } from "./parallel-runner.ts";

/** Every lane keeps a copy of the weights and, during a step, some gradients of their size. */
const LARGEST_COPIED_MODEL_BYTES = 2 ** 24;

/**
 * Small models run several micro-batches at once, on one thread each: for them that is almost twice as fast on two
 * cores. Large ones share every operation between the threads. The results are the same, bit for bit.
 */
export async function chooseRunner(
  weights: Weights,
  options: { readonly threads: number; readonly callFlags: CallFlags; readonly pause: () => Promise<void> },
): Promise<(parameters: Feeds, changing: readonly string[]) => BatchRunner> {
  const { threads, callFlags, pause } = options;
  const sizeBytes = [...weights.values()].reduce((sum, { data }) => sum + data.byteLength, 0);
  if (threads === 1 || sizeBytes > LARGEST_COPIED_MODEL_BYTES) {
    const runtime = await loadRuntime({ threads });
    return (parameters) => localRunner({ runtime, parameters, pause });
  }
  const runtime = await loadRuntime({ threads: 1 });
  return (parameters, changing) =>
    parallelRunner({ runtime, parameters, changing, lanes: threads, callFlags, pause });
}
