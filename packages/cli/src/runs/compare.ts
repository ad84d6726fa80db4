import { KEY_METRICS, analysisRoutes, type PairedDifference, type RunComparison } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { formatSignificant } from "../output/format.ts";
import { UsageError } from "../output/failure.ts";
import type { DetailResult, Field, Table } from "../output/result.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { difference, differencesTable } from "./differences.ts";

/** Two runs or more side by side. */
export async function compareRuns(context: Context, names: readonly string[]): Promise<DetailResult> {
  if (names.length < 2) throw new UsageError("One run cannot be compared.", "Name two runs or more.");
  const { client, workspace } = await openWorkspaceSession(context);
  const comparison = await client.call(analysisRoutes.compare, { query: { runs: names.join(",") } });
  const { runs, curves } = comparison;
  const more = curves.length - keyCurves(comparison).length;
  return {
    kind: "detail",
    data: comparison,
    title: runs.map(({ name }) => name).join(" · "),
    fields: [
      ...runs.map((run): Field => [
        run.name,
        `${run.status}, step ${run.current_step} of ${run.total_steps ?? "?"}, ${run.model} on ${run.dataset}`,
      ]),
      ...comparison.paired.map((paired): Field => ["Held-out rows", pairedText(paired)]),
      ...comparison.notes.map((note): Field => ["Note", note]),
    ],
    tables: [
      { title: "Settings that differ", table: differencesTable(runs, comparison.differences) },
      { title: more > 0 ? `Curves (${more} more with --json)` : "Curves", table: curvesTable(comparison) },
    ].filter(({ table }) => table.rows.length > 0),
    extras: workspaceExtras(workspace),
  };
}

function keyCurves({ curves }: RunComparison): RunComparison["curves"] {
  return curves.filter(({ key }) => KEY_METRICS.includes(key));
}

function curvesTable(comparison: RunComparison): Table {
  const { runs } = comparison;
  const rows = keyCurves(comparison).flatMap(({ key, summaries }) =>
    runs.flatMap(({ name }, index) => {
      const summary = summaries[index] ?? null;
      if (summary === null) return [[key, name, "0", "–", "–", "–", "–", "–"]];
      const { points, first, last, least, most, average } = summary;
      return [[key, name, String(points), ...[first, last, least, most, average].map(formatSignificant)]];
    }),
  );
  const numeric = ["POINTS", "FIRST", "LAST", "LEAST", "MOST", "AVERAGE"];
  return { headers: ["CURVE", "RUN", ...numeric], rows, numeric };
}

function pairedText(paired: PairedDifference): string {
  const {
    a,
    b,
    reward,
    pass_rate: passRate,
    only_a_passes: onlyA,
    only_b_passes: onlyB,
    sign_test_p: p,
  } = paired;
  return [
    `${b} (step ${paired.b_step}) against ${a} (step ${paired.a_step}), the same ${paired.rows} rows: pass rate ${difference(passRate)}, reward ${difference(reward)}`,
    `only ${a} passes ${onlyA}, only ${b} passes ${onlyB}${p === null ? "" : `, sign test p = ${p.toPrecision(2)}`}`,
  ].join("\n");
}
