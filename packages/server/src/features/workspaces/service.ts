import { randomUUID } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import { DEFAULT_BRANCH, type Repositories } from "../../git/repositories.ts";
import { createSync } from "./sync.ts";
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

/** The first segments of the server's own paths, which a workspace's dashboard pages would collide with. */
const RESERVED_NAMES = new Set(
  (
    "account admin api assets blobs device docs git help join login logout new osmosis settings sign-in sign-up " +
    "static workers workspaces"
  ).split(" "),
);

/**
 * Workspaces, who may use them, and what was pushed to their repositories. `seed` gives the folder whose files a
 * repository begins with.
 */
export function createWorkspaces(parts: {
  db: Kysely<Tables>;
  repositories: Repositories;
  now: () => Date;
  seed: () => Promise<string>;
}) {
  const { db, repositories } = parts;
  const sync = createSync(parts);

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
    sync,

    /**
     * Syncs what was pushed while nobody watched, as when the server was killed in the middle of a push. A workspace
     * that cannot be synced does not keep the others from their work: it gets a failed event.
     *
     * @returns the failures
     */
    async syncAll(): Promise<{ repository: string; error: unknown }[]> {
      const failures: { repository: string; error: unknown }[] = [];
      const all = await db.selectFrom("workspaces").select(["id", "repository", "default_branch"]).execute();
      for (const { id, repository, default_branch: branch } of all) {
        try {
          await sync(id);
        } catch (error) {
          failures.push({ repository, error });
          await sync.recordFailure(id, branch, error);
        }
      }
      return failures;
    },

    /**
     * Makes a workspace with its repository, which holds the workspace template; the user becomes its owner.
     *
     * @throws {OsmosisError} CONFLICT when the name is taken; VALIDATION when the server needs it for itself.
     */
    async create(userId: string, name: string): Promise<WorkspaceAccess> {
      if (RESERVED_NAMES.has(name)) {
        throw new OsmosisError("VALIDATION", `The name ${name} is reserved.`, {
          hint: "Choose another name.",
          details: { field: "name" },
        });
      }
      const taken = await db
        .selectFrom("workspaces")
        .select("id")
        .where("name", "=", name)
        .executeTakeFirst();
      if (taken !== undefined) throw nameTaken(name);
      const access: WorkspaceAccess = {
        id: randomUUID(),
        name,
        repository: `${name}/workspace`,
        defaultBranch: DEFAULT_BRANCH,
        role: "owner",
      };
      await repositories.create(access.id, await parts.seed());
      try {
        await insert(userId, access);
      } catch (error) {
        await repositories.remove(access.id);
        if (isUniqueViolation(error)) throw nameTaken(name);
        throw error;
      }
      await sync(access.id);
      return access;
    },

    /** Who may use a workspace, by name. */
    async members(workspaceId: string): Promise<{ id: string; email: string; name: string; role: Role }[]> {
      return await db
        .selectFrom("memberships")
        .innerJoin("users", "users.id", "memberships.user_id")
        .select(["users.id", "users.email", "users.name", "memberships.role"])
        .where("memberships.workspace_id", "=", workspaceId)
        .orderBy("users.name")
        .orderBy("users.email")
        .execute();
    },

    /** What a person may do; `undefined` when they are no member. */
    async roleOf(workspaceId: string, userId: string): Promise<Role | undefined> {
      const row = await db
        .selectFrom("memberships")
        .select("role")
        .where("workspace_id", "=", workspaceId)
        .where("user_id", "=", userId)
        .executeTakeFirst();
      return row?.role;
    },

    /** Adds a person, or changes what they may do. @throws {OsmosisError} CONFLICT when no owner would be left. */
    async addMember(workspaceId: string, userId: string, role: Role): Promise<void> {
      await db.transaction().execute(async (trx) => {
        await trx
          .insertInto("memberships")
          .values({ workspace_id: workspaceId, user_id: userId, role })
          .onConflict((conflict) => conflict.columns(["workspace_id", "user_id"]).doUpdateSet({ role }))
          .execute();
        await keepOwner(trx, workspaceId);
      });
    },

    /** @throws {OsmosisError} NOT_FOUND when they are no member; CONFLICT when no owner would be left. */
    async removeMember(workspaceId: string, userId: string): Promise<void> {
      await db.transaction().execute(async (trx) => {
        const { numDeletedRows } = await trx
          .deleteFrom("memberships")
          .where("workspace_id", "=", workspaceId)
          .where("user_id", "=", userId)
          .executeTakeFirst();
        if (numDeletedRows === 0n) throw new OsmosisError("NOT_FOUND", "There is no such member.");
        await keepOwner(trx, workspaceId);
      });
    },

    /** The workspaces of a user, by name. */
    async listFor(userId: string): Promise<WorkspaceAccess[]> {
      const rows = await memberships(userId)
        .where("memberships.role", "is not", null)
        .orderBy("workspaces.name")
        .execute();
      return rows.flatMap((row) => (row.role === null ? [] : [{ ...row, role: row.role }]));
    },

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

  async function insert(userId: string, access: WorkspaceAccess): Promise<void> {
    await db.transaction().execute(async (trx) => {
      await trx
        .insertInto("workspaces")
        .values({
          id: access.id,
          name: access.name,
          repository: access.repository,
          default_branch: access.defaultBranch,
        })
        .execute();
      await trx
        .insertInto("memberships")
        .values({ workspace_id: access.id, user_id: userId, role: access.role })
        .execute();
    });
  }
}

/** Locks the workspace, so of two owners who leave together one is held back. */
async function keepOwner(trx: Kysely<Tables>, workspaceId: string): Promise<void> {
  await trx.selectFrom("workspaces").select("id").where("id", "=", workspaceId).forUpdate().execute();
  const owner = await trx
    .selectFrom("memberships")
    .select("user_id")
    .where("workspace_id", "=", workspaceId)
    .where("role", "=", "owner")
    .executeTakeFirst();
  if (owner === undefined) {
    throw new OsmosisError("CONFLICT", "A workspace needs an owner, and this one would have none.", {
      hint: "Make another member an owner first.",
    });
  }
}

function nameTaken(name: string): OsmosisError {
  return new OsmosisError("CONFLICT", `There is a workspace named ${name} already.`, {
    hint: "Choose another name.",
    details: { field: "name" },
  });
}

function isUniqueViolation(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "23505";
}
