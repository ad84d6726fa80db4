import { evalRoutes } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { formatNumber } from "../output/format.ts";
import type { DetailResult } from "../output/result.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { evalSummary } from "./row.ts";
import { evalFields } from "./run-fields.ts";
import { saveMetrics } from "./save-metrics.ts";

export async function evalInfo(
  context: Context,
  name: string,
  options: { readonly output?: string },
): Promise<DetailResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const params = { name };
  const [detail, metrics] = await Promise.all([
    client.call(evalRoutes.get, { params }),
    client.call(evalRoutes.metrics, { params }),
  ]);
  const run = { ...detail.eval_run, results: detail.eval_run.results ?? detail.results };
  const outputPath =
    options.output === undefined
      ? null
      : await saveMetrics(context, { output: options.output, run, metrics: { eval_run: run, ...metrics } });
  return {
    kind: "detail",
    data: {
      ...detail,
      eval_run: run,
      summary: evalSummary(run),
      metrics,
      metrics_available: true,
      output_path: outputPath,
    },
    title: run.name,
    fields: [
      ...evalFields(run),
      ["Code", `${detail.branch ?? "pinned"} (${detail.commit_sha.slice(0, 8)}), ${detail.entrypoint}`],
      ...metrics.pass_at_k.map(({ k, value }) => [`pass@${k}`, formatNumber(value)] as const),
      ...(outputPath === null ? [] : [["Metrics saved to", outputPath] as const]),
    ],
    extras: workspaceExtras(workspace),
  };
}
