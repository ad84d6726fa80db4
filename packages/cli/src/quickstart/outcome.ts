import { EvalResults } from "@osmosis/protocol";
import { z } from "zod";
import { formatNumber } from "../output/format.ts";
import type { Table } from "../output/result.ts";

/** What an evaluation run said, as far as the quickstart reports it. */
export const EvalEnvelope = z.object({
  resource: z.object({ name: z.string(), url: z.string(), results: EvalResults }),
});

export const TrainEnvelope = z.object({
  resource: z.object({
    name: z.string(),
    url: z.string(),
    seconds: z.number().nullable(),
    training_run: z.object({
      current_step: z.int(),
      reward: z.number().nullable(),
      pass_rate: z.number().nullable(),
    }),
    checkpoints: z.array(z.object({ checkpoint_name: z.string(), checkpoint_step: z.int() })),
  }),
});

/** One side of the comparison; every rate with its n, its 95 % interval and its temperature. */
export type Measurement = {
  readonly run: string;
  readonly pass_rate: number;
  readonly pass_rate_ci: readonly [number, number] | null;
  readonly mean_reward: number | null;
  readonly mean_reward_ci: readonly [number, number] | null;
  readonly n: number;
  readonly temperature: number | null;
};

export function measurementOf(envelope: unknown): Measurement {
  const { name, results } = EvalEnvelope.parse(envelope).resource;
  const { pass_rate_ci: passCi, score_ci: scoreCi } = results;
  return {
    run: name,
    pass_rate: results.pass_rate,
    pass_rate_ci: passCi === null ? null : [passCi.ci_low, passCi.ci_high],
    mean_reward: results.score,
    mean_reward_ci: scoreCi === null ? null : [scoreCi.ci_low, scoreCi.ci_high],
    n: passCi?.n ?? results.graded,
    temperature: results.temperature,
  };
}

export function comparisonTable(baseline: Measurement, trained: Measurement): Table {
  const row = (label: string, measured: Measurement): string[] => [
    label,
    formatNumber(measured.pass_rate),
    interval(measured.pass_rate_ci),
    formatNumber(measured.mean_reward),
    interval(measured.mean_reward_ci),
    String(measured.n),
    measured.temperature === null ? "–" : String(measured.temperature),
  ];
  const headers = ["MODEL", "PASS RATE", "95 %", "MEAN REWARD", "95 % ", "N", "TEMPERATURE"];
  return { headers, rows: [row("baseline", baseline), row("trained", trained)], numeric: headers.slice(1) };
}

function interval(bounds: readonly [number, number] | null): string {
  return bounds === null ? "–" : `${formatNumber(bounds[0])}–${formatNumber(bounds[1])}`;
}
