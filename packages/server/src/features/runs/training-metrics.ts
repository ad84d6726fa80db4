import { TrainingStatus, type TrainingMetrics } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { RunRow } from "./run-rows.ts";
import { durationOf } from "./views.ts";

/** Curves with a name of their own, in the order in which a dashboard shows them; all others follow by key. */
const TITLES: Readonly<Record<string, string>> = {
  "rollout/raw_reward": "Training Reward",
  "rollout/pass_rate": "Training Pass Rate",
  "eval/validation/reward": "Validation Reward",
  "eval/validation/pass_rate": "Validation Pass Rate",
  "train/entropy_loss": "Model Entropy",
  "rollout/response_lengths": "Response Length",
  "rollout/total_lengths": "Total Length",
  "rollout/truncated_ratio": "Truncation Ratio",
};
const ORDER = Object.keys(TITLES);

type Point = TrainingMetrics["metrics"][number]["data_points"][number];

/** The curves of a training run over its committed steps. A step that lacks a metric has no point in its curve. */
export async function trainingMetrics(db: Kysely<Tables>, row: RunRow, now: Date): Promise<TrainingMetrics> {
  const steps = await db
    .selectFrom("run_steps")
    .select(["step", "metrics", "created_at"])
    .where("run_id", "=", row.id)
    .orderBy("step")
    .execute();
  const curves = new Map<string, Point[]>();
  for (const { step, metrics, created_at } of steps) {
    for (const [key, value] of Object.entries(metrics)) {
      const points = curves.get(key) ?? [];
      points.push({ step, value, timestamp: created_at.getTime() });
      curves.set(key, points);
    }
  }
  const keys = [...curves.keys()].toSorted((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const metrics = keys.map((key) => ({
    metric_key: key,
    title: titleOf(key),
    data_points: curves.get(key) ?? [],
  }));
  return {
    training_run_id: row.id,
    status: TrainingStatus.parse(row.status),
    overview: {
      duration_ms: durationOf(row, now),
      metric_summaries: metrics.map(({ metric_key, title, data_points }) => ({
        key: metric_key,
        title,
        ...summaryOf(data_points.map((point) => point.value)),
      })),
      examples_processed_count: row.examples,
      latest_step: row.committed_steps,
      total_steps: row.total_steps,
    },
    metrics,
  };
}

function rank(key: string): number {
  const position = ORDER.indexOf(key);
  return position === -1 ? ORDER.length : position;
}

/** `train/grad_norm` is "Train: grad norm". */
function titleOf(key: string): string {
  const [first = "", ...rest] = key.split("/");
  const words = rest.join(" ").replaceAll("_", " ");
  return (
    TITLES[key] ?? `${first.charAt(0).toUpperCase()}${first.slice(1)}${words === "" ? "" : `: ${words}`}`
  );
}

function summaryOf(values: readonly number[]) {
  const initial = values[0] ?? 0;
  const latest = values.at(-1) ?? 0;
  return {
    initial,
    latest,
    delta: latest - initial,
    min: values.reduce((least, value) => Math.min(least, value), initial),
    max: values.reduce((most, value) => Math.max(most, value), initial),
  };
}
