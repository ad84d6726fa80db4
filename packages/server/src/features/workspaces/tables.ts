import type { CreatedAt } from "../../database/columns.ts";

interface WorkspacesTable {
  id: string;
  /** Lower-case slug; the first segment of the repository's path and of the dashboard's URLs. */
  name: string;
  /** `owner/repo` in lower case, by which a command names its workspace: by default `<name>/workspace`. */
  repository: string;
  default_branch: string;
  created_at: CreatedAt;
}

export type Role = "owner" | "admin" | "member";

interface MembershipsTable {
  workspace_id: string;
  user_id: string;
  role: Role;
  created_at: CreatedAt;
}

/** One row for each branch that exists in a workspace's repository, at the commit that was synced last. */
interface BranchesTable {
  workspace_id: string;
  name: string;
  commit_sha: string;
  updated_at: CreatedAt;
}

export type SyncStatus = "pending" | "syncing" | "success" | "failed";

/** The history of pushes, one row for each branch and commit. */
interface SyncEventsTable {
  id: string;
  workspace_id: string;
  branch: string;
  commit_sha: string;
  author: string;
  message: string;
  status: SyncStatus;
  rollouts_count: number | null;
  error: string | null;
  created_at: CreatedAt;
  finished_at: Date | null;
}

/** A sub-directory of `rollouts/` on a branch. It stays, inactive, after a push has removed it. */
interface RolloutsTable {
  id: string;
  workspace_id: string;
  branch: string;
  name: string;
  description: string | null;
  is_active: boolean;
  last_synced_commit_sha: string;
  created_at: CreatedAt;
  updated_at: CreatedAt;
}

export interface WorkspaceTables {
  workspaces: WorkspacesTable;
  memberships: MembershipsTable;
  branches: BranchesTable;
  sync_events: SyncEventsTable;
  rollouts: RolloutsTable;
}
