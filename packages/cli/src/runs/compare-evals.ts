import { evalComparisonRoute, type EvalComparison, type PairedRows } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { formatProportion } from "../output/format.ts";
import type { DetailResult, Field } from "../output/result.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { difference, differencesTable } from "./differences.ts";

/** Row indexes that are shown; `--json` has all. */
const SHOWN_ROWS = 20;

/** Two evaluations side by side, row by row. */
export async function compareEvals(context: Context, a: string, b: string): Promise<DetailResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const comparison = await client.call(evalComparisonRoute, { query: { a, b } });
  const runs = [comparison.a, comparison.b];
  const { paired } = comparison;
  return {
    kind: "detail",
    data: comparison,
    title: runs.map(({ name }) => name).join(" · "),
    fields: [
      ...runs.map((run): Field => [run.name, measuredText(run)]),
      ...(paired === null ? [] : pairedFields(comparison, paired)),
      ...comparison.notes.map((note): Field => ["Note", note]),
    ],
    tables: [{ title: "Settings that differ", table: differencesTable(runs, comparison.differences) }].filter(
      ({ table }) => table.rows.length > 0,
    ),
    nextSteps: (paired?.lost_rows ?? []).slice(0, 1).map((row) => ({
      command: `osmosis eval rollouts ${comparison.b.name} eval-s0-r${row}-n0`,
      description: "read a row that was lost",
    })),
    extras: workspaceExtras(workspace),
  };
}

function measuredText(run: EvalComparison["a"]): string {
  const sampled = run.temperature === null ? "the agent's own" : String(run.temperature);
  return [
    `${run.status}, ${run.model} on ${run.dataset}, temperature ${sampled}`,
    `pass rate ${formatProportion(run.pass_rate)}, reward ${formatProportion(run.reward)}`,
  ].join("\n");
}

function pairedFields({ a, b }: EvalComparison, paired: PairedRows): Field[] {
  const { rows, won_rows: won, lost_rows: lost, sign_test_p: p } = paired;
  const same = rows - won.length - lost.length;
  return [
    [
      "Same rows",
      `${b.name} against ${a.name}, ${rows} rows: pass rate ${difference(paired.pass_rate)}, reward ${difference(paired.reward)}`,
    ],
    ["Rows", `${b.name} wins ${won.length}, loses ${lost.length}, ${same} are the same${signText(p)}`],
    ...(won.length === 0 ? [] : [["Won", rowsText(won)] as const]),
    ...(lost.length === 0 ? [] : [["Lost", rowsText(lost)] as const]),
  ];
}

function signText(p: number | null): string {
  return p === null ? "" : `, sign test p = ${p.toPrecision(2)}`;
}

function rowsText(rows: readonly number[]): string {
  const more = rows.length - SHOWN_ROWS;
  return `rows ${rows.slice(0, SHOWN_ROWS).join(", ")}${more > 0 ? ` and ${more} more with --json` : ""}`;
}
