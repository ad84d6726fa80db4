import { z } from "zod";
import { route } from "../route.ts";
import { TrainerChoice } from "../run-config.ts";
import { FileNames, FileRef, LogEntries, ModelAssignment, RolloutRecord } from "./worker.ts";

/**
 * How the rollouts of one run are spread over several workers. The worker that holds the run publishes shares of its
 * rollouts; idle workers claim them, one at a time each, run them with the run's newest weights, and record them. Whoever
 * holds a run or a share shows its lease (header `X-Osmosis-Lease`) and is answered 409 `CONFLICT` once it is lost. A
 * share ends with the lease of the run that it was published under.
 */

/** A rollout that any worker may run. */
export const ShareTask = z.object({
  /** What its record is called, but for a suffix `-a<n>`. */
  rollout_id: z.string(),
  row_index: z.int(),
  /** What else it depends on, in the words of the controller, which runs at both ends. */
  options: z.record(z.string(), z.json()),
});
export type ShareTask = z.infer<typeof ShareTask>;

/** The newest weights of a run, for those who sample from them elsewhere. */
export const ShareWeights = z.object({
  version: z.int(),
  /** `lora`: the files are an adapter on top of the base model; `full`: they are a whole model. */
  method: z.enum(["lora", "full"]),
  files: z.array(FileRef),
});
export type ShareWeights = z.infer<typeof ShareWeights>;

/** Everything that a worker needs to run a part of another worker's rollouts. */
export const Share = z.object({
  share_id: z.string(),
  lease_token: z.string(),
  lease_seconds: z.number(),
  run_id: z.string(),
  run_name: z.string(),
  rollout: z.string(),
  entrypoint: z.string(),
  commit_sha: z.string(),
  env: z.record(z.string(), z.string()),
  secrets: z.record(z.string(), z.string()),
  /** The platform's own trainer, which may hold the weights of the model. */
  trainer: z.object({ url: z.string(), api_key: z.string().optional() }).optional(),
  /** What the run's configuration says of trainers. */
  trainer_choice: TrainerChoice,
  model: ModelAssignment,
  /** Null for an evaluation, which samples from `model`. */
  weights: ShareWeights.nullable(),
  tasks: z.array(ShareTask),
});
export type Share = z.infer<typeof Share>;

const ok = z.object({ ok: z.literal(true) });
const OfRun = "/api/worker/runs/{run_id}/shares";
const OfShare = "/api/worker/shares/{share_id}";

/** For the worker that holds the run. */
export const sharingRoutes = {
  /** Names the files that were uploaded under `weights/<version>/`; all but the version before are deleted. */
  weights: route({
    method: "POST",
    path: "/api/worker/runs/{run_id}/weights",
    access: "worker",
    body: z.object({ version: z.int().min(0), method: z.enum(["lora", "full"]), files: FileNames }),
    response: ok,
  }),
  /** The ids are the caller's: publishing a share twice is the same as once. */
  publish: route({
    method: "POST",
    path: OfRun,
    access: "worker",
    body: z.object({
      shares: z.array(
        z.object({
          share_id: z.uuid(),
          phase: z.enum(["eval", "train", "validation"]),
          step: z.int(),
          tasks: z.array(ShareTask).min(1),
        }),
      ),
    }),
    response: ok,
  }),
  /** Takes a share back that nobody works on: its rollouts that are not recorded, or null while somebody does. */
  withdraw: route({
    method: "POST",
    path: `${OfRun}/withdraw`,
    access: "worker",
    body: z.object({ share_id: z.uuid() }),
    response: z.object({ rollout_ids: z.array(z.string()).nullable() }),
  }),
  /**
   * Waits for rollouts that others recorded after the number `after`, or until more shares are open than the caller
   * knows of. Without `after` it answers the last number at once.
   */
  collect: route({
    method: "POST",
    path: `${OfRun}/collect`,
    access: "worker",
    body: z.object({
      after: z.int().nullable(),
      known_open: z.int().min(0),
      wait_ms: z.int().min(0).max(25_000),
    }),
    response: z.object({
      after: z.int(),
      rollouts: z.array(RolloutRecord),
      /** Shares that nobody works on. */
      open: z.int(),
    }),
  }),
};

/** For the worker that holds a share. */
export const shareRoutes = {
  /** Waits up to `wait_ms` for a share; null when none came, or when a run waits for a worker. */
  claim: route({
    method: "POST",
    path: "/api/worker/shares/claim",
    access: "worker",
    body: z.object({
      worker: z.string(),
      instance: z.string(),
      wait_ms: z.int().min(0).max(25_000),
      /** Runs that this worker cannot help. */
      except_runs: z.array(z.string()).max(1000),
    }),
    response: z.object({ share: Share.nullable() }),
  }),
  heartbeat: route({
    method: "POST",
    path: `${OfShare}/heartbeat`,
    access: "worker",
    body: z.object({}),
    response: ok,
  }),
  /** A rollout that is none of the share's, or is recorded already, is left out. */
  record: route({
    method: "POST",
    path: `${OfShare}/rollouts`,
    access: "worker",
    body: z.object({ rollouts: z.array(RolloutRecord) }),
    response: ok,
  }),
  /** Lets others have the share. */
  giveBack: route({
    method: "POST",
    path: `${OfShare}/give-back`,
    access: "worker",
    body: z.object({ reason: z.string() }),
    response: ok,
  }),
  log: route({
    method: "POST",
    path: `${OfShare}/logs`,
    access: "worker",
    body: z.object({ entries: LogEntries }),
    response: ok,
  }),
};

/** Like those of a run (`workerStreams`), under the lease of a share. */
export const shareStreams = {
  rows: `${OfShare}/rows`,
  source: `${OfShare}/source.tar`,
} as const;
