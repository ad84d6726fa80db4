import { OsmosisError } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Role } from "./tables.ts";

/** A workspace as one of its members meets it. */
export interface WorkspaceAccess {
  id: string;
  name: string;
  /** `owner/repo`. */
  repository: string;
  defaultBranch: string;
  role: Role;
}

export type Workspaces = ReturnType<typeof createWorkspaces>;

/** Workspaces and who may use them. */
export function createWorkspaces(parts: { db: Kysely<Tables> }) {
  const { db } = parts;

  const memberships = (userId: string) =>
    db
      .selectFrom("workspaces")
      .leftJoin("memberships", (join) =>
        join.onRef("memberships.workspace_id", "=", "workspaces.id").on("memberships.user_id", "=", userId),
      )
      .select([
        "workspaces.id",
        "workspaces.name",
        "workspaces.repository",
        "workspaces.default_branch as defaultBranch",
        "memberships.role",
      ]);

  return {
    /** @throws {OsmosisError} GIT_REPOSITORY_NOT_CONNECTED or GIT_REPOSITORY_ACCESS_DENIED. */
    async accessByRepository(userId: string, repository: string): Promise<WorkspaceAccess> {
      const row = await memberships(userId)
        .where("workspaces.repository", "=", repository)
        .executeTakeFirst();
      if (row === undefined) {
        throw new OsmosisError(
          "NOT_FOUND",
          `No workspace of this server belongs to the repository ${repository}.`,
          {
            hint: "Check `git remote get-url origin`, or create a workspace and clone its repository.",
            details: { code: "GIT_REPOSITORY_NOT_CONNECTED" },
          },
        );
      }
      if (row.role === null) {
        throw new OsmosisError("FORBIDDEN", `You are not a member of the workspace of ${repository}.`, {
          hint: "Ask one of its owners to add you, or sign in as somebody else.",
          details: { code: "GIT_REPOSITORY_ACCESS_DENIED" },
        });
      }
      return { ...row, role: row.role };
    },

    /** The workspaces of a user, by name. */
    async listFor(userId: string): Promise<WorkspaceAccess[]> {
      const rows = await memberships(userId)
        .where("memberships.role", "is not", null)
        .orderBy("workspaces.name")
        .execute();
      return rows.flatMap((row) => (row.role === null ? [] : [{ ...row, role: row.role }]));
    },

    /** @throws {OsmosisError} NOT_FOUND, also for a workspace of others: its name is nobody else's business. */
    async accessByName(userId: string, name: string): Promise<WorkspaceAccess> {
      const row = await memberships(userId)
        .where("workspaces.name", "=", name.toLowerCase())
        .executeTakeFirst();
      if (row === undefined || row.role === null) {
        throw new OsmosisError("NOT_FOUND", `There is no workspace ${name}, or you are not a member of it.`);
      }
      return { ...row, role: row.role };
    },
  };
}
