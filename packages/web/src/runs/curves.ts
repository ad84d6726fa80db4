import { metricDefinition, type TrainingMetrics } from "@osmosis/protocol";
import { formatConditions } from "../format.ts";

/** Colours that curves of one chart take in turn. */
export const SERIES_COLOURS = 8;

export type Point = { readonly step: number; readonly value: number };

export type Series = {
  readonly label: string;
  /** Under which conditions the value of a step was measured. */
  readonly remark?: (step: number) => string;
  /** What the values are, exactly. */
  readonly definition?: string;
  readonly points: readonly Point[];
};

export type Curves = {
  readonly title: string;
  /** Values are shares: the axis goes from 0 to 1. */
  readonly isShare: boolean;
  /** What the values are, where all series are of one kind. */
  readonly definition?: string;
  readonly series: readonly Series[];
};

/** The metrics that say how many rollouts a value is of, and at which temperature. */
type Conditions = { readonly n: string; readonly temperature: string };

type Source = { readonly label: string; readonly key: string; readonly conditions?: Conditions };

const TRAINED: Conditions = { n: "rollout/n", temperature: "rollout/temperature" };
const VALIDATED: Conditions = { n: "eval/validation/n", temperature: "eval/validation/temperature" };

const TRAINING = { label: "training", conditions: TRAINED };
const VALIDATION = { label: "validation", conditions: VALIDATED };

/** The charts of a training run by the platform's metric keys. */
const CHARTS: readonly { readonly title: string; readonly isShare?: boolean; readonly sources: Source[] }[] =
  [
    {
      title: "Reward",
      sources: [
        { ...TRAINING, key: "rollout/raw_reward" },
        { ...VALIDATION, key: "eval/validation/reward" },
      ],
    },
    {
      title: "Pass rate",
      isShare: true,
      sources: [
        { ...TRAINING, key: "rollout/pass_rate" },
        { ...VALIDATION, key: "eval/validation/pass_rate" },
      ],
    },
    { title: "Entropy", sources: [{ label: "nats per token", key: "train/entropy_loss" }] },
    { title: "Gradient norm", sources: [{ label: "before clipping", key: "train/grad_norm" }] },
    { title: "Response length", sources: [{ label: "tokens, mean", key: "rollout/response_lengths" }] },
    {
      title: "Truncated rollouts",
      isShare: true,
      sources: [{ label: "share", key: "rollout/truncated_ratio" }],
    },
    {
      title: "Groups that teach nothing",
      isShare: true,
      sources: [{ label: "share with equal rewards", key: "rollout/group/all_same" }],
    },
    { title: "Time per step", sources: [{ label: "seconds", key: "perf/step_time" }] },
  ];

/** The charts for which the run has values so far. */
export function curvesOf(metrics: TrainingMetrics | undefined): Curves[] {
  return CHARTS.map(({ title, isShare = false, sources }) => ({
    title,
    isShare,
    series: sources.flatMap((source) => seriesOf(metrics, source)),
  })).filter(({ series }) => series.length > 0);
}

function seriesOf(metrics: TrainingMetrics | undefined, source: Source): Series[] {
  const points = pointsOf(metrics, source.key);
  if (points.length === 0) return [];
  const { conditions } = source;
  const definition = metricDefinition(source.key)?.definition;
  return [
    {
      label: source.label,
      points,
      ...(conditions === undefined ? {} : { remark: (step) => conditionsAt(metrics, conditions, step) }),
      ...(definition === undefined ? {} : { definition }),
    },
  ];
}

/** The values of a metric; a step without one has no point. */
export function pointsOf(metrics: TrainingMetrics | undefined, key: string): readonly Point[] {
  return metrics?.metrics.find(({ metric_key }) => metric_key === key)?.data_points ?? [];
}

/** `n = 200, T = 1`: of that very step, since the newest may be another one's. */
function conditionsAt(
  metrics: TrainingMetrics | undefined,
  { n, temperature }: Conditions,
  step: number,
): string {
  const at = (key: string) => pointsOf(metrics, key).find((point) => point.step === step)?.value;
  return formatConditions(at(n), at(temperature));
}

/** When each step was committed, in order. Not every metric has a value in every step. */
export function commitTimes({ metrics }: TrainingMetrics): number[] {
  const times = new Map(
    metrics.flatMap(({ data_points }) =>
      data_points.map(({ step, timestamp }) => [step, timestamp] as const),
    ),
  );
  return [...times].sort(([a], [b]) => a - b).map(([, time]) => time);
}

/** Columns for a plot: all steps in order, and for each series a value or a gap at each. */
export function aligned(series: readonly Series[]): [steps: number[], ...values: (number | null)[][]] {
  const steps = [...new Set(series.flatMap(({ points }) => points.map(({ step }) => step)))].sort(
    (a, b) => a - b,
  );
  return [
    steps,
    ...series.map(({ points }) => {
      const values = new Map(points.map(({ step, value }) => [step, value]));
      return steps.map((step) => values.get(step) ?? null);
    }),
  ];
}

/**
 * Milliseconds that the steps which are left will take at the pace of the newest ones; undefined before the first.
 * Only times that the platform wrote are compared, never this computer's clock.
 */
export function timeLeft(run: {
  readonly startedAt: string | null;
  readonly totalSteps: number | null;
  /** When the steps were committed, in order. */
  readonly committedAt: readonly number[];
}): number | undefined {
  const { startedAt, totalSteps } = run;
  const recent = run.committedAt.slice(-20);
  const last = recent.at(-1);
  if (last === undefined || startedAt === null || totalSteps === null) return undefined;
  const before = recent.length > 1 ? recent[0] : Date.parse(startedAt);
  const steps = Math.max(recent.length - 1, 1);
  const pace = (last - (before ?? last)) / steps;
  return pace * Math.max(totalSteps - run.committedAt.length, 0);
}
