import { z } from "zod";
import { route } from "../route.ts";
import { PageQuery, pageFields } from "./page.ts";

/** Name of a workspace or repository: one URL segment, one half of an `owner/repo` identity. */
export const Slug = z
  .string()
  .max(64)
  .regex(/^[a-z0-9][a-z0-9-]*$/, "must be lower-case letters, digits and hyphens");

export const Workspace = z.object({
  id: z.string(),
  name: z.string(),
  role: z.string(),
  connected_repo: z.object({ id: z.string(), repo_full_name: z.string() }).nullable(),
  /** What `git clone` takes; the user's token is the password. */
  clone_url: z.string(),
  platform_url: z.string(),
});
export type Workspace = z.infer<typeof Workspace>;

export const Rollout = z.object({
  id: z.string(),
  name: z.string(),
  description: z.string().nullish(),
  is_active: z.boolean(),
  branch: z.string(),
  repo_full_name: z.string(),
  last_synced_commit_sha: z.string(),
  last_synced_at: z.string(),
  created_at: z.string(),
});
export type Rollout = z.infer<typeof Rollout>;

export const SyncEvent = z.object({
  id: z.string(),
  branch: z.string(),
  commit_sha: z.string(),
  author: z.string(),
  message: z.string(),
  status: z.enum(["pending", "syncing", "success", "failed"]),
  rollouts_found: z.int(),
  error: z.string().nullable(),
  created_at: z.string(),
});
export type SyncEvent = z.infer<typeof SyncEvent>;

/** What a member may do: an owner everything, an admin all but deleting the workspace, a member work in it. */
export const Role = z.enum(["owner", "admin", "member"]);

export const Member = z.object({ id: z.string(), email: z.string(), name: z.string(), role: Role });
export type Member = z.infer<typeof Member>;

export const workspaceRoutes = {
  list: route({
    method: "GET",
    path: "/api/cli/workspaces",
    access: "user",
    response: z.object({ workspaces: z.array(Workspace) }),
  }),
  /** Makes the workspace and its repository from the template. 409 when the name is taken. */
  create: route({
    method: "POST",
    path: "/api/cli/workspaces",
    access: "user",
    body: z.object({ name: Slug }),
    response: Workspace,
  }),
  rollouts: route({
    method: "GET",
    path: "/api/cli/rollouts",
    access: "workspace",
    query: PageQuery.extend({ branch: z.string().optional() }),
    response: z.object({ rollouts: z.array(Rollout), ...pageFields }),
  }),
  members: route({
    method: "GET",
    path: "/api/workspaces/{workspace}/members",
    access: "workspace",
    response: z.object({ members: z.array(Member) }),
  }),
  /**
   * Adds a person by address, or changes their role; for owners and admins. Somebody new to the server is registered,
   * and the answer holds a link that signs them in, once, within half an hour.
   */
  setMember: route({
    method: "POST",
    path: "/api/workspaces/{workspace}/members",
    access: "workspace",
    body: z.object({
      email: z.email(),
      name: z.string().min(1).max(200).optional(),
      role: Role.default("member"),
    }),
    response: z.object({ member: Member, sign_in_url: z.string().nullable() }),
  }),
  removeMember: route({
    method: "DELETE",
    path: "/api/workspaces/{workspace}/members/{user_id}",
    access: "workspace",
    response: z.object({}),
  }),
  syncEvents: route({
    method: "GET",
    path: "/api/cli/sync-events",
    access: "workspace",
    query: PageQuery,
    response: z.object({ sync_events: z.array(SyncEvent), ...pageFields }),
  }),
};
