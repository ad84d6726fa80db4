import { z } from "zod";
import { route } from "../route.ts";
import { Estimate } from "./estimate.ts";
import { EvalStatus } from "./runs.ts";

/** The same rows in two evaluations: what the second is better by. */
const PairedRows = z.object({
  /** Rows that both have an answer for. */
  rows: z.int(),
  /** Mean of reward(b) − reward(a) over the rows with both, with a 95 % interval. */
  reward: Estimate.nullable(),
  /** Mean of pass(b) − pass(a), likewise. Each is null below two rows, and where all rows differ by the same part of 1. */
  pass_rate: Estimate.nullable(),
  /** Indexes of the rows that the second passes and the first does not; of several attempts, passes more often. */
  won_rows: z.array(z.int()),
  lost_rows: z.array(z.int()),
  /** Two-sided sign test over the rows won and lost; null when there is none. */
  sign_test_p: z.number().nullable(),
  /** Rows that only one of the two was measured on, or has an answer for; they count in neither difference. */
  rows_only_in_a: z.int(),
  rows_only_in_b: z.int(),
});
export type PairedRows = z.infer<typeof PairedRows>;

const ComparedEval = z.object({
  id: z.string(),
  name: z.string(),
  status: EvalStatus,
  model: z.string(),
  dataset: z.string(),
  commit_sha: z.string(),
  temperature: z.number().nullable(),
  /** Of all of its own rows; null while it has none. */
  pass_rate: Estimate.nullable(),
  reward: Estimate.nullable(),
  /** Rows that it is to measure. */
  sampled_rows: z.int().nullable(),
  platform_url: z.string(),
});

export const EvalComparison = z.object({
  a: ComparedEval,
  b: ComparedEval,
  /** Settings whose values differ, by key; the values of a and b, null where one has none. */
  differences: z.array(z.object({ key: z.string(), values: z.array(z.unknown()) })),
  /** Null where the rows are not the same data; then a note says so. */
  paired: PairedRows.nullable(),
  /** What to know before the numbers are believed. */
  notes: z.array(z.string()),
});
export type EvalComparison = z.infer<typeof EvalComparison>;

/** `a` and `b` are names or ids of evaluations. */
export const evalComparisonRoute = route({
  method: "GET",
  path: "/api/cli/eval-run-comparison",
  access: "workspace",
  query: z.object({ a: z.string(), b: z.string() }),
  response: EvalComparison,
});
