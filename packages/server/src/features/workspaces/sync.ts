import { randomUUID } from "node:crypto";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import { storableText } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";
import type { Repositories } from "../../git/repositories.ts";

/** A sub-directory of `rollouts/` in a commit. */
interface FoundRollout {
  name: string;
  description: string | null;
}

/**
 * Brings the tables in line with the branches of a workspace's repository.
 *
 * For each branch that moved, an event goes `pending → syncing → success | failed`; with its end, the branch's commit
 * and its rollouts are recorded in one transaction. Running it again changes nothing, so it runs after each push and,
 * for pushes that a dying server did not get to, at each start. One repository is synced by one caller at a time.
 */
export function createSync(parts: { db: Kysely<Tables>; repositories: Repositories; now: () => Date }) {
  const { db, repositories, now } = parts;
  const running = new Map<string, Promise<void>>();

  return Object.assign(sync, { recordFailure });

  /** Syncs after whoever syncs this workspace now. */
  async function sync(workspaceId: string): Promise<void> {
    const before = running.get(workspaceId) ?? Promise.resolve();
    const own = before.catch(() => {}).then(() => syncBranches(workspaceId));
    running.set(workspaceId, own);
    try {
      await own;
    } finally {
      if (running.get(workspaceId) === own) running.delete(workspaceId);
    }
  }

  /** Marks the workspace as one that cannot be synced, once for each reason. */
  async function recordFailure(workspaceId: string, branch: string, error: unknown): Promise<void> {
    const text =
      error instanceof OsmosisError ? `${error.message} ${error.hint ?? ""}`.trim() : errorMessage(error);
    const last = await db
      .selectFrom("sync_events")
      .select("error")
      .where("workspace_id", "=", workspaceId)
      .orderBy("created_at", "desc")
      .executeTakeFirst();
    if (last?.error === text) return;
    const event = {
      id: randomUUID(),
      workspace_id: workspaceId,
      branch,
      commit_sha: "",
      author: "",
      message: "",
    };
    await db
      .insertInto("sync_events")
      .values({
        ...event,
        status: "failed",
        rollouts_count: null,
        error: storableText(text),
        created_at: now(),
        finished_at: now(),
      })
      .execute();
  }

  async function syncBranches(workspaceId: string): Promise<void> {
    // Events that a killed server left unfinished; their branches still differ and get another one below.
    await db
      .deleteFrom("sync_events")
      .where("workspace_id", "=", workspaceId)
      .where("status", "in", ["pending", "syncing"])
      .execute();
    const pushed = await repositories.branches(workspaceId);
    const rows = await db
      .selectFrom("branches")
      .selectAll()
      .where("workspace_id", "=", workspaceId)
      .execute();
    const known = new Map(rows.map((row) => [row.name, row.commit_sha]));
    for (const name of known.keys()) {
      if (!pushed.has(name)) await forgetBranch(workspaceId, name);
    }
    const moved = [...pushed].filter(([name, sha]) => known.get(name) !== sha);
    const events: { id: string; branch: string; sha: string }[] = [];
    for (const [branch, sha] of moved) {
      events.push({ id: await recordEvent(workspaceId, branch, sha), branch, sha });
    }
    for (const event of events) await syncBranch(workspaceId, event);
  }

  async function recordEvent(workspaceId: string, branch: string, sha: string): Promise<string> {
    const commit = await repositories.commitInfo(workspaceId, sha);
    const id = randomUUID();
    await db
      .insertInto("sync_events")
      .values({
        id,
        workspace_id: workspaceId,
        branch,
        commit_sha: sha,
        author: storableText(commit.author),
        message: storableText(commit.subject),
        status: "pending",
        rollouts_count: null,
        error: null,
        created_at: now(),
        finished_at: null,
      })
      .execute();
    return id;
  }

  async function syncBranch(
    workspaceId: string,
    event: { id: string; branch: string; sha: string },
  ): Promise<void> {
    await db.updateTable("sync_events").set({ status: "syncing" }).where("id", "=", event.id).execute();
    let found: FoundRollout[];
    try {
      found = await findRollouts(workspaceId, event.sha);
    } catch (error) {
      await db.transaction().execute(async (trx) => {
        await setBranch(trx, workspaceId, event);
        await trx
          .updateTable("sync_events")
          .set({ status: "failed", error: storableText(errorMessage(error)), finished_at: now() })
          .where("id", "=", event.id)
          .execute();
      });
      return;
    }
    await db.transaction().execute(async (trx) => {
      await setRollouts(trx, workspaceId, { ...event, found });
      await setBranch(trx, workspaceId, event);
      await trx
        .updateTable("sync_events")
        .set({ status: "success", rollouts_count: found.length, finished_at: now() })
        .where("id", "=", event.id)
        .execute();
    });
  }

  async function findRollouts(workspaceId: string, sha: string): Promise<FoundRollout[]> {
    const names = await repositories.listFolders(workspaceId, sha, "rollouts");
    const found: FoundRollout[] = [];
    for (const name of names) {
      const manifest = await repositories.readFile(workspaceId, sha, `rollouts/${name}/package.json`);
      found.push({ name, description: descriptionOf(manifest) });
    }
    return found;
  }

  async function setBranch(trx: Kysely<Tables>, workspaceId: string, event: { branch: string; sha: string }) {
    await trx
      .insertInto("branches")
      .values({ workspace_id: workspaceId, name: event.branch, commit_sha: event.sha, updated_at: now() })
      .onConflict((conflict) =>
        conflict.columns(["workspace_id", "name"]).doUpdateSet({ commit_sha: event.sha, updated_at: now() }),
      )
      .execute();
  }

  async function setRollouts(
    trx: Kysely<Tables>,
    workspaceId: string,
    event: { branch: string; sha: string; found: readonly FoundRollout[] },
  ): Promise<void> {
    await trx
      .updateTable("rollouts")
      .set({ is_active: false, updated_at: now() })
      .where("workspace_id", "=", workspaceId)
      .where("branch", "=", event.branch)
      .where("is_active", "=", true)
      .execute();
    for (const { name, description } of event.found) {
      const state = { description, is_active: true, last_synced_commit_sha: event.sha, updated_at: now() };
      await trx
        .insertInto("rollouts")
        .values({ id: randomUUID(), workspace_id: workspaceId, branch: event.branch, name, ...state })
        .onConflict((conflict) => conflict.columns(["workspace_id", "branch", "name"]).doUpdateSet(state))
        .execute();
    }
  }

  async function forgetBranch(workspaceId: string, branch: string): Promise<void> {
    await db.transaction().execute(async (trx) => {
      await trx
        .updateTable("rollouts")
        .set({ is_active: false, updated_at: now() })
        .where("workspace_id", "=", workspaceId)
        .where("branch", "=", branch)
        .execute();
      await trx
        .deleteFrom("branches")
        .where("workspace_id", "=", workspaceId)
        .where("name", "=", branch)
        .execute();
    });
  }
}

/** The `description` of a package manifest, when there is one that can be read. */
function descriptionOf(manifest: string | undefined): string | null {
  if (manifest === undefined) return null;
  try {
    const parsed: unknown = JSON.parse(manifest);
    if (typeof parsed !== "object" || parsed === null || !("description" in parsed)) return null;
    return typeof parsed.description === "string" ? storableText(parsed.description) : null;
  } catch {
    // A broken manifest shows when the rollout is prepared; for the catalogue it only lacks a description.
    return null;
  }
}
