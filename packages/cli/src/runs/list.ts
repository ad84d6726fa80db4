import { evalRoutes, trainingRoutes } from "@osmosis/protocol";
import type { ListOptions } from "../commands/options.ts";
import type { Context } from "../context.ts";
import { formatNumber, formatTime } from "../output/format.ts";
import type { ListResult } from "../output/result.ts";
import { collectPages } from "../platform/pages.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { evalRow, trainingRow } from "./row.ts";

export async function listEvalRuns(context: Context, options: ListOptions): Promise<ListResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const { items, page } = await collectPages(options, async (query) => {
    const { eval_runs: runs, ...rest } = await client.call(evalRoutes.list, { query });
    return { items: runs, ...rest };
  });
  return {
    kind: "list",
    items: items.map(evalRow),
    page,
    table: {
      headers: ["NAME", "STATUS", "MODEL", "DATA SET", "PASS RATE", "REWARD", "N", "CREATED"],
      rows: items.map(({ results, ...run }) => [
        run.name,
        run.status,
        run.model.name,
        run.dataset.name,
        results === null || results.graded === 0 ? "–" : formatNumber(results.pass_rate),
        formatNumber(results?.score),
        String(results?.pass_rate_ci?.n ?? results?.graded ?? "–"),
        formatTime(run.created_at),
      ]),
      numeric: ["PASS RATE", "REWARD", "N"],
    },
    empty: "No evaluation runs yet. Start one with `osmosis eval submit CONFIG`.",
    extras: workspaceExtras(workspace),
  };
}

export async function listTrainingRuns(context: Context, options: ListOptions): Promise<ListResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const { items, page } = await collectPages(options, async (query) => {
    const { training_runs: runs, ...rest } = await client.call(trainingRoutes.list, { query });
    return { items: runs, ...rest };
  });
  return {
    kind: "list",
    items: items.map(trainingRow),
    page,
    table: {
      headers: ["NAME", "STATUS", "MODEL", "DATA SET", "STEP", "REWARD", "PASS RATE", "CREATED"],
      rows: items.map((run) => [
        run.name,
        run.status,
        run.model.name,
        run.dataset.name,
        `${run.current_step}/${run.total_steps ?? "?"}`,
        formatNumber(run.reward),
        formatNumber(run.pass_rate),
        formatTime(run.created_at),
      ]),
      numeric: ["STEP", "REWARD", "PASS RATE"],
    },
    empty: "No training runs yet. Start one with `osmosis train submit CONFIG`.",
    extras: workspaceExtras(workspace),
  };
}
