import { z } from "zod";
import { route } from "../route.ts";

/**
 * A replay repeats the updates of a training run from its stored rollouts, up to one step, and holds what they measure
 * against what the run measured. Nothing is sampled and no code of the workspace runs.
 */

const metrics = z.record(z.string(), z.number());

export const ReplayStatus = z.enum(["pending", "running", "finished", "failed", "stopped"]);
export type ReplayStatus = z.infer<typeof ReplayStatus>;

export const ReplayedStep = z.object({
  step: z.int(),
  /** What the run measured: those of its metrics that an update gives. */
  recorded: metrics,
  replayed: metrics,
  /** Whether both are the same to the last bit; null for a step with other settings than the run's. */
  equal: z.boolean().nullable(),
});
export type ReplayedStep = z.infer<typeof ReplayedStep>;

export const Replay = z.object({
  id: z.string(),
  training_run_name: z.string(),
  status: ReplayStatus,
  /** Why it failed, for a person. */
  error: z.string().nullable(),
  /** The last step that it repeats. */
  step: z.int(),
  /** The step after which it begins, 0 for the beginning of the run; null until a worker has it. */
  from_step: z.int().nullable(),
  /** The last step that was repeated so far. */
  current_step: z.int(),
  /** Settings of the last step that differ from the run's, by their place in the configuration. */
  set: z.record(z.string(), z.unknown()),
  /** Whether every step is equal; null until it has finished, and where the last one has other settings than the run's. */
  equal: z.boolean().nullable(),
  /** In order. */
  steps: z.array(ReplayedStep),
  created_at: z.string(),
  completed_at: z.string().nullable(),
});
export type Replay = z.infer<typeof Replay>;

export const replayRoutes = {
  /** Queues a replay. The same one that has not ended yet is answered as it is. */
  start: route({
    method: "POST",
    path: "/api/cli/training-runs/{name}/replays",
    access: "workspace",
    body: z.object({
      /** A committed step; without it the last one. */
      step: z.int().min(1).optional(),
      /** Settings such as `advanced.loss` that the last step is repeated with; it is then not compared. */
      set: z.record(z.string(), z.unknown()).optional(),
    }),
    response: Replay,
  }),
  get: route({
    method: "GET",
    path: "/api/cli/training-runs/{name}/replays/{replay_id}",
    access: "workspace",
    response: Replay,
  }),
  stop: route({
    method: "POST",
    path: "/api/cli/training-runs/{name}/replays/{replay_id}/stop",
    access: "workspace",
    body: z.object({}),
    response: z.object({ id: z.string(), status: z.string() }),
  }),
};
