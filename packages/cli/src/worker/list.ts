import { workersRoutes, type WorkerInfo } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { formatTime } from "../output/format.ts";
import { wholePage, type ListResult } from "../output/result.ts";
import { openSession } from "../platform/session.ts";

export async function listWorkers(context: Context): Promise<ListResult> {
  const { client } = await openSession(context);
  const { workers } = await client.call(workersRoutes.list, {});
  return {
    kind: "list",
    items: workers,
    page: wholePage(workers.length),
    table: {
      headers: ["NAME", "STATE", "WORKS ON", "LAST SEEN", "STARTED"],
      rows: workers.map(({ name, state, holds, last_seen_at: seen, started_at: started }) => [
        name,
        state,
        holds.length === 0 ? "-" : holds.map(workText).join(", "),
        formatTime(seen),
        formatTime(started),
      ]),
    },
    empty: "No worker was here in the last day. `osmosis worker -h` says how one joins.",
  };
}

function workText(work: WorkerInfo["holds"][number]): string {
  return work.type === "run"
    ? `${work.kind} ${work.run_name}`
    : `${work.rollouts_left} ${work.rollouts_left === 1 ? "rollout" : "rollouts"} of ${work.run_name}`;
}
