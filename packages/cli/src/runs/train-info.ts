import { analysisRoutes, trainingRoutes } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { formatSignificant, formatTime } from "../output/format.ts";
import { checkpointReward } from "../model/checkpoint-reward.ts";
import type { DetailResult } from "../output/result.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { findingsTable } from "./doctor.ts";
import { trainingSummary } from "./row.ts";
import { trainingFields } from "./run-fields.ts";
import { saveMetrics } from "./save-metrics.ts";
import { isFinal } from "./wait.ts";

export async function trainInfo(
  context: Context,
  name: string,
  options: { readonly output?: string },
): Promise<DetailResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const params = { name };
  const [detail, metrics, { checkpoints }, diagnosis] = await Promise.all([
    client.call(trainingRoutes.get, { params }),
    client.call(trainingRoutes.metrics, { params }),
    client.call(trainingRoutes.checkpoints, { params }),
    client.call(analysisRoutes.doctor, { params }),
  ]);
  const run = detail.training_run;
  const outputPath =
    options.output === undefined
      ? null
      : await saveMetrics(context, {
          output: options.output,
          run,
          metrics: { training_run: run, ...metrics },
        });
  // The first things to look at; groups such as `Perf: …` are for those who look for them.
  const summaries = metrics.overview.metric_summaries.filter(({ title }) => !title.includes(": "));
  const others = metrics.overview.metric_summaries.length - summaries.length;
  return {
    kind: "detail",
    data: {
      ...detail,
      summary: trainingSummary(run),
      platform_url: run.platform_url,
      checkpoints,
      findings: diagnosis.findings,
      in_progress: !isFinal(run.status),
      metrics,
      metrics_available: true,
      output_path: outputPath,
    },
    title: run.name,
    fields: [
      ...trainingFields(run),
      ["Code", `${detail.branch ?? "pinned"} (${detail.commit_sha.slice(0, 8)}), ${detail.entrypoint}`],
      ...(outputPath === null ? [] : [["Metrics saved to", outputPath] as const]),
    ],
    tables: [
      ...findingsTable(diagnosis),
      ...(summaries.length === 0
        ? []
        : [
            {
              title: others === 0 ? "Metrics" : `Metrics (${others} more with --json or -o)`,
              table: {
                headers: ["METRIC", "FIRST", "LATEST", "MIN", "MAX"],
                rows: summaries.map((summary) => [
                  summary.title,
                  formatSignificant(summary.initial),
                  formatSignificant(summary.latest),
                  formatSignificant(summary.min),
                  formatSignificant(summary.max),
                ]),
                numeric: ["FIRST", "LATEST", "MIN", "MAX"],
              },
            },
          ]),
      ...(checkpoints.length === 0
        ? []
        : [
            {
              title: "Checkpoints",
              table: {
                headers: ["NAME", "STEP", "REWARD", "MARKS", "CREATED"],
                rows: checkpoints.map((checkpoint) => [
                  checkpoint.checkpoint_name,
                  String(checkpoint.checkpoint_step),
                  checkpointReward(checkpoint),
                  checkpoint.status === "removed" ? "files removed" : checkpoint.marks.join(", "),
                  formatTime(checkpoint.created_at),
                ]),
                numeric: ["STEP", "REWARD"],
              },
            },
          ]),
    ],
    extras: workspaceExtras(workspace),
  };
}
