import { PASS_THRESHOLD, alignCurves, differencesOf, pairedDifference } from "@osmosis/controller";
import { TrainingStatus, type PairedDifference, type RunComparison } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { RunRow } from "../runs/run-rows.ts";
import { trainingMetrics } from "../runs/training-metrics.ts";
import { flatConfig, trainingRunView, type ViewPlace } from "../runs/views.ts";

/** Lines up the curves and settings of runs, and pairs their newest validations with that of the first. */
export async function compareRuns(
  db: Kysely<Tables>,
  rows: readonly RunRow[],
  { now, ...place }: ViewPlace & { readonly now: Date },
): Promise<RunComparison> {
  const curves = [];
  for (const row of rows) {
    const { metrics } = await trainingMetrics(db, row, now);
    curves.push(new Map(metrics.map(({ metric_key, data_points }) => [metric_key, data_points] as const)));
  }
  const aligned = alignCurves(
    curves.map(
      (byKey) =>
        new Map([...byKey].map(([key, points]) => [key, points.map(({ step, value }) => ({ step, value }))])),
    ),
  );
  const notes: string[] = [];
  const paired: PairedDifference[] = [];
  const [first, ...others] = rows;
  for (const other of others) {
    const found = first === undefined ? "no run" : await pair(db, first, other);
    if (typeof found === "string") notes.push(found);
    else paired.push(found);
  }
  return {
    runs: rows.map((row) => {
      const run = trainingRunView(row, place);
      return {
        id: run.id,
        name: run.name,
        status: TrainingStatus.parse(run.status),
        current_step: run.current_step,
        total_steps: run.total_steps,
        model: run.model.name,
        dataset: run.dataset.name,
        commit_sha: row.commit_sha,
        platform_url: run.platform_url,
      };
    }),
    differences: differencesOf(rows.map(settingsOf)),
    curves: aligned,
    paired,
    // That the first run has no validation is the reason for each of the others.
    notes: [...new Set(notes)],
  };
}

/** What a run's result may depend on, the resolved commit and version of the data set included. */
export function settingsOf(row: RunRow): Record<string, unknown> {
  return {
    ...flatConfig(row),
    ...Object.fromEntries(Object.entries(row.config.env).map(([name, value]) => [`env.${name}`, value])),
    commit_sha: row.commit_sha,
    dataset_version: row.dataset_version_id,
  };
}

async function pair(db: Kysely<Tables>, a: RunRow, b: RunRow): Promise<PairedDifference | string> {
  const both = `${a.name} and ${b.name}`;
  if (a.dataset_version_id !== b.dataset_version_id) {
    return `${both} were trained on different data, so their held-out rows cannot be paired.`;
  }
  const [inA, inB] = [await newestValidation(db, a), await newestValidation(db, b)];
  if (inA === undefined || inB === undefined) {
    return `${(inA === undefined ? a : b).name} has no validation, so held-out rows cannot be paired.`;
  }
  return pairedDifference(inA, inB);
}

/** Of the newest committed step that was validated. */
async function newestValidation(db: Kysely<Tables>, { id, name, committed_steps: committed }: RunRow) {
  const validations = db
    .selectFrom("run_rollouts")
    .where("run_id", "=", id)
    .where("phase", "=", "validation")
    .where("step", "<=", committed);
  const newest = await validations.select((by) => by.fn.max("step").as("step")).executeTakeFirstOrThrow();
  if (newest.step === null) return undefined;
  const rollouts = await validations
    .select(["row_index", "outcome", "reward"])
    .where("step", "=", newest.step)
    .execute();
  return { run: name, step: newest.step, passThreshold: PASS_THRESHOLD, rollouts };
}
