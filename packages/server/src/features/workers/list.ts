import { REPLAY_WORKER_SUFFIX, type WorkerInfo } from "@osmosis/protocol";
import type { Platform } from "../../platform.ts";

/** So long a worker is shown after it was last heard of. */
const SHOWN_MS = 24 * 3600_000;
/** Longer than a claim waits, and than a lease. */
const SILENT_AFTER_MS = 60_000;

/** The workers of the last day, and what each works on, by name. */
export async function listWorkers({ db, now }: Pick<Platform, "db" | "now">): Promise<WorkerInfo[]> {
  const seen = await db
    .selectFrom("workers")
    .selectAll()
    .where("last_seen_at", ">", new Date(now().getTime() - SHOWN_MS))
    .orderBy("last_seen_at", "desc")
    .execute();
  const runs = await db
    .selectFrom("runs")
    .innerJoin("workspaces", "workspaces.id", "runs.workspace_id")
    .select([
      "workspaces.name as workspace",
      "runs.name",
      "runs.kind",
      "runs.committed_steps",
      "runs.worker",
      "runs.lease_expires_at",
    ])
    .where("runs.status", "=", "running")
    .where("runs.lease_expires_at", ">", now())
    .execute();
  const shares = await db
    .selectFrom("run_shares")
    .innerJoin("runs", (join) =>
      join
        .onRef("runs.id", "=", "run_shares.run_id")
        .onRef("runs.lease_token", "=", "run_shares.holder_token"),
    )
    .innerJoin("workspaces", "workspaces.id", "runs.workspace_id")
    .select([
      "workspaces.name as workspace",
      "runs.name",
      "runs.kind",
      "run_shares.phase",
      "run_shares.step",
      "run_shares.tasks",
      "run_shares.worker",
      "run_shares.lease_expires_at",
    ])
    .where("runs.status", "=", "running")
    .where("run_shares.withdrawn", "=", false)
    .where("run_shares.lease_expires_at", ">", now())
    .execute();
  const workers = new Map<string, WorkerInfo>();
  for (const { name: laneName, first_seen_at, last_seen_at } of seen) {
    const name = workerOf(laneName);
    // The newest start of a name is the first.
    if (workers.has(name)) continue;
    const times = { started_at: first_seen_at.toISOString(), last_seen_at: last_seen_at.toISOString() };
    const isSilent = now().getTime() - last_seen_at.getTime() > SILENT_AFTER_MS;
    workers.set(name, { name, state: isSilent ? "silent" : "idle", ...times, holds: [] });
  }
  for (const run of runs) {
    workers.get(workerOf(run.worker ?? ""))?.holds.push({
      type: "run",
      workspace: run.workspace,
      run_name: run.name,
      kind: run.kind,
      committed_steps: run.committed_steps,
      lease_expires_at: run.lease_expires_at?.toISOString() ?? "",
    });
  }
  for (const share of shares) {
    if (share.tasks.length === 0) continue;
    workers.get(share.worker ?? "")?.holds.push({
      type: "share",
      workspace: share.workspace,
      run_name: share.name,
      kind: share.kind,
      phase: share.phase,
      step: share.step,
      rollouts_left: share.tasks.length,
      lease_expires_at: share.lease_expires_at?.toISOString() ?? "",
    });
  }
  return [...workers.values()]
    .map((worker) => (worker.holds.length === 0 ? worker : { ...worker, state: "working" as const }))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** A worker has a name of its own in the lane of replays. */
function workerOf(name: string): string {
  return name.endsWith(REPLAY_WORKER_SUFFIX) ? name.slice(0, -REPLAY_WORKER_SUFFIX.length) : name;
}
