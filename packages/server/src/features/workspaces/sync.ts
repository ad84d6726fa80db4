import { randomUUID } from "node:crypto";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import { storableText } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";
import type { CommitInfo, Repositories } from "../../git/repositories.ts";

/** A sub-directory of `rollouts/` in a commit. */
interface FoundRollout {
  name: string;
  description: string | null;
}

type BranchEvent = { readonly id: string; readonly branch: string; readonly commit: CommitInfo };
type SyncedBranch = BranchEvent & { readonly found: readonly FoundRollout[] };

/** Branches that are recorded together: a repository may have thousands. */
const BATCH = 500;

/**
 * Brings the tables in line with the branches of a workspace's repository.
 *
 * For each branch that moved, an event goes `syncing → success | failed`; with its end, the branch's commit
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
    const gone = [...known.keys()].filter((name) => !pushed.has(name));
    for (let start = 0; start < gone.length; start += BATCH) {
      await forgetBranches(workspaceId, gone.slice(start, start + BATCH));
    }
    const moved = [...pushed].filter(([name, sha]) => known.get(name) !== sha);
    // Thousands of branches often point to a handful of commits.
    const commitOf = once((sha) => repositories.commitInfo(workspaceId, sha));
    const rolloutsOf = once((sha) => findRollouts(workspaceId, sha));
    for (let start = 0; start < moved.length; start += BATCH) {
      const events: BranchEvent[] = [];
      for (const [branch, sha] of moved.slice(start, start + BATCH)) {
        events.push({ id: randomUUID(), branch, commit: await commitOf(sha) });
      }
      await recordEvents(workspaceId, events);
      const done: SyncedBranch[] = [];
      for (const event of events) {
        try {
          done.push({ ...event, found: await rolloutsOf(event.commit.sha) });
        } catch (error) {
          await failBranch(workspaceId, event, error);
        }
      }
      await finishBranches(workspaceId, done);
    }
  }

  async function recordEvents(workspaceId: string, events: readonly BranchEvent[]): Promise<void> {
    await db
      .insertInto("sync_events")
      .values(
        events.map(({ id, branch, commit }) => ({
          id,
          workspace_id: workspaceId,
          branch,
          commit_sha: commit.sha,
          author: storableText(commit.author),
          message: storableText(commit.subject),
          status: "syncing" as const,
          rollouts_count: null,
          error: null,
          created_at: now(),
          finished_at: null,
        })),
      )
      .execute();
  }

  async function failBranch(workspaceId: string, event: BranchEvent, error: unknown): Promise<void> {
    await db.transaction().execute(async (trx) => {
      await setBranches(trx, workspaceId, [event]);
      await trx
        .updateTable("sync_events")
        .set({ status: "failed", error: storableText(errorMessage(error)), finished_at: now() })
        .where("id", "=", event.id)
        .execute();
    });
  }

  async function finishBranches(workspaceId: string, done: readonly SyncedBranch[]): Promise<void> {
    if (done.length === 0) return;
    const byCount = Map.groupBy(done, ({ found }) => found.length);
    await db.transaction().execute(async (trx) => {
      await setRollouts(trx, workspaceId, done);
      await setBranches(trx, workspaceId, done);
      for (const [count, events] of byCount) {
        await trx
          .updateTable("sync_events")
          .set({ status: "success", rollouts_count: count, finished_at: now() })
          .where(
            "id",
            "in",
            events.map(({ id }) => id),
          )
          .execute();
      }
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

  async function setBranches(
    trx: Kysely<Tables>,
    workspaceId: string,
    events: readonly BranchEvent[],
  ): Promise<void> {
    await trx
      .insertInto("branches")
      .values(
        events.map(({ branch, commit }) => ({
          workspace_id: workspaceId,
          name: branch,
          commit_sha: commit.sha,
          updated_at: now(),
        })),
      )
      .onConflict((conflict) =>
        conflict.columns(["workspace_id", "name"]).doUpdateSet((eb) => ({
          commit_sha: eb.ref("excluded.commit_sha"),
          updated_at: eb.ref("excluded.updated_at"),
        })),
      )
      .execute();
  }

  async function setRollouts(
    trx: Kysely<Tables>,
    workspaceId: string,
    events: readonly SyncedBranch[],
  ): Promise<void> {
    await trx
      .updateTable("rollouts")
      .set({ is_active: false, updated_at: now() })
      .where("workspace_id", "=", workspaceId)
      .where(
        "branch",
        "in",
        events.map(({ branch }) => branch),
      )
      .where("is_active", "=", true)
      .execute();
    const rows = events.flatMap(({ branch, commit, found }) =>
      found.map(({ name, description }) => ({
        id: randomUUID(),
        workspace_id: workspaceId,
        branch,
        name,
        description,
        is_active: true,
        last_synced_commit_sha: commit.sha,
        updated_at: now(),
      })),
    );
    for (let start = 0; start < rows.length; start += BATCH) {
      await trx
        .insertInto("rollouts")
        .values(rows.slice(start, start + BATCH))
        .onConflict((conflict) =>
          conflict.columns(["workspace_id", "branch", "name"]).doUpdateSet((eb) => ({
            description: eb.ref("excluded.description"),
            is_active: eb.ref("excluded.is_active"),
            last_synced_commit_sha: eb.ref("excluded.last_synced_commit_sha"),
            updated_at: eb.ref("excluded.updated_at"),
          })),
        )
        .execute();
    }
  }

  async function forgetBranches(workspaceId: string, names: readonly string[]): Promise<void> {
    await db.transaction().execute(async (trx) => {
      await trx
        .updateTable("rollouts")
        .set({ is_active: false, updated_at: now() })
        .where("workspace_id", "=", workspaceId)
        .where("branch", "in", names)
        .execute();
      await trx
        .deleteFrom("branches")
        .where("workspace_id", "=", workspaceId)
        .where("name", "in", names)
        .execute();
    });
  }
}

/** `ask`, which remembers what it was told. */
function once<T>(ask: (sha: string) => Promise<T>): (sha: string) => Promise<T> {
  const answers = new Map<string, Promise<T>>();
  return (sha) => {
    const known = answers.get(sha) ?? ask(sha);
    answers.set(sha, known);
    return known;
  };
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
