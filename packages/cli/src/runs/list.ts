import { evalRoutes, trainingRoutes } from "@osmosis/protocol";
import type { ListOptions } from "../commands/options.ts";
import type { Context } from "../context.ts";
import { formatCount, formatNumber, formatTime } from "../output/format.ts";
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

/** Of the newest validation with its n, and, for what it is, of the last batch that was trained on. */
const HEADLINE = ["VALIDATION REWARD", "VALIDATION PASS RATE", "N", "LAST STEP REWARD"];

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
      headers: ["NAME", "STATUS", "MODEL", "DATA SET", "STEP", ...HEADLINE, "CREATED"],
      rows: items.map((run) => [
        run.name,
        run.status,
        run.model.name,
        run.dataset.name,
        `${run.current_step}/${run.total_steps ?? "?"}`,
        formatNumber(run.validation?.reward),
        formatNumber(run.validation?.pass_rate.value),
        formatCount(run.validation?.pass_rate.n),
        formatNumber(run.last_step?.reward),
        formatTime(run.created_at),
      ]),
      numeric: ["STEP", ...HEADLINE],
    },
    empty: "No training runs yet. Start one with `osmosis train submit CONFIG`.",
    extras: workspaceExtras(workspace),
  };
}
