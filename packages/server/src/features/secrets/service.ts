import { randomUUID } from "node:crypto";
import { OsmosisError, type Secret } from "@osmosis/protocol";
import { sql, type Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import { createSeal } from "./seal.ts";

/** Where the value of a run's secret comes from. `user_override`: personal, and the workspace has one of the name, too. */
export type SecretSource = "workspace" | "user" | "user_override" | "run";

/** Whose secrets are meant. */
export type SecretOwner = { readonly workspaceId: string; readonly userId: string };

export type Secrets = ReturnType<typeof createSecrets>;

/** Secrets at rest. A value leaves in two ways only: into the run that names it, and never to a client. */
export function createSecrets(parts: { db: Kysely<Tables>; key: Buffer; now: () => Date }) {
  const { db, now } = parts;
  const seal = createSeal(parts.key);
  const views = ({ workspaceId, userId }: SecretOwner) =>
    db
      .selectFrom("secrets")
      .leftJoin("users as creator", "creator.id", "secrets.created_by")
      .leftJoin("users as updater", "updater.id", "secrets.updated_by")
      .select([
        "secrets.id",
        "secrets.user_id",
        "secrets.name",
        "secrets.created_at",
        "secrets.updated_at",
        "creator.name as creator_name",
        "updater.name as updater_name",
      ])
      .where("secrets.workspace_id", "=", workspaceId)
      .where((by) => by.or([by("secrets.user_id", "is", null), by("secrets.user_id", "=", userId)]));

  return {
    /** The workspace's secrets and the user's own, by name. */
    async list(
      owner: SecretOwner,
      page: { scope: "all" | "workspace" | "user"; limit: number; offset: number },
    ): Promise<{ items: Secret[]; total: number }> {
      const query = views(owner)
        .$if(page.scope === "workspace", (by) => by.where("secrets.user_id", "is", null))
        .$if(page.scope === "user", (by) => by.where("secrets.user_id", "is not", null));
      const { total } = await query
        .clearSelect()
        .select(sql<number>`count(*)::int`.as("total"))
        .executeTakeFirstOrThrow();
      const rows = await query
        .orderBy("secrets.name")
        .orderBy("secrets.id")
        .limit(page.limit)
        .offset(page.offset)
        .execute();
      return { items: rows.map(viewOf), total };
    },

    /** Makes or replaces. */
    async set(
      owner: SecretOwner,
      secret: { name: string; value: string; scope: "workspace" | "user" },
    ): Promise<Secret> {
      const userId = secret.scope === "user" ? owner.userId : null;
      const sealed = seal.close(secret.value, contextOf(owner.workspaceId, userId, secret.name));
      const { id } = await db
        .insertInto("secrets")
        .values({
          id: randomUUID(),
          workspace_id: owner.workspaceId,
          user_id: userId,
          name: secret.name,
          sealed,
          created_by: owner.userId,
          updated_by: owner.userId,
          created_at: now(),
          updated_at: now(),
        })
        .onConflict((conflict) =>
          conflict
            .expression(sql`workspace_id, coalesce(user_id, ''), name`)
            .doUpdateSet({ sealed, updated_by: owner.userId, updated_at: now() }),
        )
        .returning("id")
        .executeTakeFirstOrThrow();
      return viewOf(await views(owner).where("secrets.id", "=", id).executeTakeFirstOrThrow());
    },

    /** @throws {OsmosisError} NOT_FOUND. */
    async delete(
      owner: SecretOwner,
      { name, scope }: { name: string; scope: "workspace" | "user" },
    ): Promise<void> {
      const deleted = await db
        .deleteFrom("secrets")
        .where("workspace_id", "=", owner.workspaceId)
        .where("name", "=", name)
        .where("user_id", scope === "user" ? "=" : "is", scope === "user" ? owner.userId : null)
        .returning("id")
        .execute();
      if (deleted.length === 0) {
        throw new OsmosisError(
          "NOT_FOUND",
          `There is no ${scope === "user" ? "personal" : "workspace"} secret ${name}.`,
          {
            hint: "See `osmosis secret list` for the names and scopes.",
          },
        );
      }
    },

    /** For each name where its value would come from now; absent when it is nowhere. Personal goes before workspace. */
    async sourcesOf(owner: SecretOwner, names: readonly string[]): Promise<Map<string, SecretSource>> {
      const sources = new Map<string, SecretSource>();
      for (const { name, user_id } of await stored(owner, names)) {
        const isBoth = sources.has(name);
        if (user_id !== null) sources.set(name, isBoth ? "user_override" : "user");
        else sources.set(name, isBoth ? "user_override" : "workspace");
      }
      return sources;
    },

    /** The values of those names that are stored now. */
    async valuesOf(owner: SecretOwner, names: readonly string[]): Promise<Map<string, string>> {
      const values = new Map<string, string>();
      for (const { name, user_id, sealed } of await stored(owner, names)) {
        // Workspace first, so that the personal one replaces it.
        values.set(name, seal.open(sealed, contextOf(owner.workspaceId, user_id, name)));
      }
      return values;
    },
  };

  async function stored({ workspaceId, userId }: SecretOwner, names: readonly string[]) {
    if (names.length === 0) return [];
    return await db
      .selectFrom("secrets")
      .select(["name", "user_id", "sealed"])
      .where("workspace_id", "=", workspaceId)
      .where((by) => by.or([by("user_id", "is", null), by("user_id", "=", userId)]))
      .where("name", "in", names)
      .orderBy(sql`user_id nulls first`)
      .execute();
  }
}

/** Binds a sealed value to its place. */
function contextOf(workspaceId: string, userId: string | null, name: string): string {
  return JSON.stringify(["secret", workspaceId, userId, name]);
}

function viewOf(row: {
  id: string;
  user_id: string | null;
  name: string;
  created_at: Date;
  updated_at: Date;
  creator_name: string | null;
  updater_name: string | null;
}): Secret {
  return {
    id: row.id,
    name: row.name,
    scope: row.user_id === null ? "workspace" : "user",
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
    creator_name: row.creator_name,
    updater_name: row.updater_name,
  };
}
