import { z } from "zod";

/** Uploaded data sets that wait to be read. */
export const DATASET_QUEUE = "datasets";
export const DatasetJob = z.object({ version_id: z.string() });

/** Runs that wait for a worker. A job's id is the run's. */
export const RUN_QUEUE = "runs";
export const RunJob = z.object({ run_id: z.string() });

/** Replays of runs, which wait in a lane of their own. A job's id is the replay's, its payload a `RunJob`. */
export const REPLAY_QUEUE = "replays";

/** The queue of a row of `runs`. */
export function queueOf({ kind }: { readonly kind: "evaluation" | "training" | "replay" }): string {
  return kind === "replay" ? REPLAY_QUEUE : RUN_QUEUE;
}

/** Every queue of the platform. The schema of a queue's payload stands here beside its name. */
export const QUEUES: readonly string[] = [DATASET_QUEUE, RUN_QUEUE, REPLAY_QUEUE];
