import { differencesOf, pairedRows } from "@osmosis/controller";
import {
  EvalStatus,
  attemptsOf,
  type EvalComparison,
  type EvalResults,
  type PairedRows,
} from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import { resultsOf } from "../runs/results.ts";
import type { RunRow } from "../runs/run-rows.ts";
import { evalRunView, type ViewPlace } from "../runs/views.ts";
import { settingsOf } from "./compare-runs.ts";

type Compared = { readonly row: RunRow; readonly results: EvalResults };

/** Two evaluations side by side, and row by row where both measured the same data: `b` against `a`. */
export async function compareEvals(
  db: Kysely<Tables>,
  rows: { readonly a: RunRow; readonly b: RunRow },
  place: ViewPlace,
): Promise<EvalComparison> {
  const a = await comparedOf(db, rows.a);
  const b = await comparedOf(db, rows.b);
  const paired = await pair(db, a, b);
  return {
    a: viewOf(a, place),
    b: viewOf(b, place),
    differences: differencesOf([a, b].map(({ row }) => settingsOf(row))),
    paired: typeof paired === "string" ? null : paired,
    notes: [
      ...(typeof paired === "string" ? [paired] : partOfRows(a, b, paired)),
      ...[a, b].flatMap((one) => unfinished(one, place)),
      ...otherThreshold(a, b),
      ...[a, b].flatMap(({ row, results }) => results.warnings.map((warning) => `${row.name}: ${warning}`)),
    ],
  };
}

async function comparedOf(db: Kysely<Tables>, row: RunRow): Promise<Compared> {
  return { row, results: row.results ?? (await resultsOf(db, row.id)) };
}

function viewOf({ row, results }: Compared, place: ViewPlace): EvalComparison["a"] {
  const { id, name, model, dataset, platform_url } = evalRunView(row, place, results);
  return {
    id,
    name,
    status: EvalStatus.parse(row.status),
    model: model.name,
    dataset: dataset.name,
    commit_sha: row.commit_sha,
    temperature: results.temperature,
    pass_rate: results.pass_rate_ci,
    reward: results.score_ci,
    sampled_rows: results.sampled_rows,
    platform_url,
  };
}

async function pair(db: Kysely<Tables>, a: Compared, b: Compared): Promise<PairedRows | string> {
  const both = `${a.row.name} and ${b.row.name}`;
  if (a.row.dataset_id !== b.row.dataset_id) {
    return `${both} measured different data sets, ${a.row.dataset_name} and ${b.row.dataset_name}, so their rows cannot be paired.`;
  }
  if (a.row.dataset_version_id !== b.row.dataset_version_id) {
    return `${both} measured different versions of ${a.row.dataset_name}, so their rows cannot be paired. Evaluate one of the two again.`;
  }
  const paired = pairedRows(await measured(db, a.row), await measured(db, b.row));
  return paired.rows === 0
    ? `${both} have no row in common that both have an answer for, so nothing can be paired. Give both the same [evaluation].limit.`
    : paired;
}

async function measured(db: Kysely<Tables>, { id, config }: RunRow) {
  if (!("evaluation" in config)) throw new Error("a training run is no evaluation");
  const rollouts = await db
    .selectFrom("run_rollouts")
    .select(["row_index", "outcome", "reward"])
    .where("run_id", "=", id)
    .where("phase", "=", "eval")
    .execute();
  return { passThreshold: config.evaluation.pass_threshold, rollouts };
}

function partOfRows(a: Compared, b: Compared, paired: PairedRows): string[] {
  const { rows, rows_only_in_a: onlyA, rows_only_in_b: onlyB } = paired;
  if (onlyA + onlyB === 0) return [];
  return [
    `The difference is of the ${rows} rows that both have an answer for; ${a.row.name} has ${onlyA} more, ${b.row.name} ${onlyB} more.`,
  ];
}

function unfinished({ row, results }: Compared, place: ViewPlace): string[] {
  if (row.status === "finished") return [];
  const wanted = results.sampled_rows * attemptsOf(evalRunView(row, place, results));
  return [`${row.name} is ${row.status}: ${results.total_runs} of ${wanted} rollouts have ended.`];
}

function otherThreshold(a: Compared, b: Compared): string[] {
  const [inA, inB] = [a.results.pass_threshold, b.results.pass_threshold];
  if (inA === inB) return [];
  return [
    `A pass is a reward of ${inA} in ${a.row.name} and of ${inB} in ${b.row.name}: compare the rewards.`,
  ];
}
