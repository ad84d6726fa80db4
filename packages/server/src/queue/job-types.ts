import { z } from "zod";

/** Uploaded data sets that wait to be read. */
export const DATASET_QUEUE = "datasets";
export const DatasetJob = z.object({ version_id: z.string() });

/** Runs that wait for a worker. A job's id is the run's. */
export const RUN_QUEUE = "runs";
export const RunJob = z.object({ run_id: z.string() });

/** Every queue of the platform. The schema of a queue's payload stands here beside its name. */
export const QUEUES: readonly string[] = [DATASET_QUEUE, RUN_QUEUE];
