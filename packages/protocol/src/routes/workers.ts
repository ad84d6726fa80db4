import { z } from "zod";
import { route } from "../route.ts";

/** Worker tokens, and which workers there are. Only the owner of the platform is answered. */

export const WorkerToken = z.object({
  id: z.string(),
  name: z.string(),
  /** The beginning of the token. */
  prefix: z.string(),
  created_at: z.string(),
  last_used_at: z.string().nullable(),
});
export type WorkerToken = z.infer<typeof WorkerToken>;

/**
 * `working` while it holds something, `idle` while it asks for work, `silent` when it was not heard of for a minute: it
 * ended, or cannot reach the platform, and what it held goes to others.
 */
export const WorkerState = z.enum(["working", "idle", "silent"]);

const HeldKind = z.enum(["evaluation", "training", "replay"]);

export const WorkerInfo = z.object({
  name: z.string(),
  state: WorkerState,
  started_at: z.string(),
  last_seen_at: z.string(),
  /** What it works on. */
  holds: z.array(
    z.discriminatedUnion("type", [
      z.object({
        type: z.literal("run"),
        workspace: z.string(),
        run_name: z.string(),
        kind: HeldKind,
        /** Of a training run: steps that are committed. */
        committed_steps: z.int(),
        lease_expires_at: z.string(),
      }),
      z.object({
        type: z.literal("share"),
        workspace: z.string(),
        run_name: z.string(),
        kind: HeldKind,
        phase: z.string(),
        step: z.int(),
        /** Rollouts that are not recorded yet. */
        rollouts_left: z.int(),
        lease_expires_at: z.string(),
      }),
    ]),
  ),
});
export type WorkerInfo = z.infer<typeof WorkerInfo>;

export const workersRoutes = {
  list: route({
    method: "GET",
    path: "/api/workers",
    access: "user",
    response: z.object({ workers: z.array(WorkerInfo) }),
  }),
  tokens: route({
    method: "GET",
    path: "/api/worker-tokens",
    access: "user",
    response: z.object({ tokens: z.array(WorkerToken) }),
  }),
  /** The only answer that holds the token's text. */
  createToken: route({
    method: "POST",
    path: "/api/worker-tokens",
    access: "user",
    body: z.object({ name: z.string().trim().min(1).max(200) }),
    response: WorkerToken.extend({ token: z.string() }),
  }),
  revokeToken: route({
    method: "DELETE",
    path: "/api/worker-tokens/{id}",
    access: "user",
    response: WorkerToken,
  }),
};
