import { evaluationResults } from "@osmosis/controller";
import type { EvalResults } from "@osmosis/protocol";
import type { Kysely, Selectable } from "kysely";
import type { Tables } from "../../database/tables.ts";

/** The results of an evaluation as far as it has come, from the rows of its rollouts. */
export async function resultsOf(db: Kysely<Tables>, runId: string): Promise<EvalResults> {
  const run = await db
    .selectFrom("runs")
    .select(["config", "model", "row_indexes", "dataset_rows"])
    .where("id", "=", runId)
    .executeTakeFirstOrThrow();
  const rollouts = await db
    .selectFrom("run_rollouts")
    .select([
      "row_index",
      "sample_index",
      "outcome",
      "reward",
      "prompt_tokens",
      "completion_tokens",
      "model_calls",
      "metrics",
    ])
    .where("run_id", "=", runId)
    .execute();
  return evaluationResults(rollouts, factsOf(run));
}

function factsOf(run: Pick<Selectable<Tables["runs"]>, "config" | "model" | "row_indexes" | "dataset_rows">) {
  if (!("evaluation" in run.config)) throw new Error("a training run has no evaluation results");
  const { evaluation, advanced } = run.config;
  return {
    passThreshold: evaluation.pass_threshold,
    sampledRows: run.row_indexes?.length ?? run.dataset_rows,
    totalDatasetRows: run.dataset_rows,
    temperature: run.model.type === "provider" ? null : advanced.temperature,
  };
}
