import type { Clock, RunEnd } from "@osmosis/controller";
import { ModelLost } from "@osmosis/engine";
import type { TrainingJob } from "@osmosis/protocol";
import { StopRequested } from "../lease-keeper.ts";
import { LeaseLost } from "../platform-call.ts";
import type { RunLink } from "../platform-link.ts";
import type { RunLog } from "../run-log.ts";
import { openMetricReporter, type MetricReporter } from "./metric-reporter.ts";
import { mlflowTracker } from "./mlflow.ts";
import type { TrackedEnd, TrackedRun, Tracker } from "./tracker.ts";
import { wandbTracker } from "./wandb.ts";

type Parts = {
  readonly link: RunLink;
  readonly log: RunLog;
  readonly fetch: typeof fetch;
  readonly clock: Clock;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Of the lease: why the run ends from outside. */
  readonly signal: AbortSignal;
};

/**
 * Lets `work` train with a link that brings every committed step to the trackers that the configuration names, too.
 * Whatever they do, the run goes on. A run that another worker will take up stays open in them.
 */
export async function trackRun(
  job: TrainingJob,
  parts: Parts,
  work: (link: RunLink) => Promise<RunEnd>,
): Promise<RunEnd> {
  const { link, log, signal } = parts;
  const trackers = trackersOf(job, parts);
  if (trackers.length === 0) return await work(link);
  await using opened = new AsyncDisposableStack();
  const reporters = trackers.map((tracker) =>
    opened.use(
      openMetricReporter({
        tracker,
        async stepsAfter(last, innerSignal) {
          if (job.committed_steps <= last) return [];
          const steps = await link.committedSteps(last, innerSignal);
          return steps.map(({ step, metrics, committed_at }) => ({
            step,
            metrics,
            committedAt: Date.parse(committed_at),
          }));
        },
        log: (level, message) => log.write(level, "trackers", message),
        clock: parts.clock,
      }),
    ),
  );
  const tracked: RunLink = {
    ...link,
    async commitStep(step, innerSignal) {
      await link.commitStep(step, innerSignal);
      for (const reporter of reporters) {
        reporter.add({ step: step.step, metrics: step.metrics, committedAt: parts.now() });
      }
    },
  };
  try {
    const end = await work(tracked);
    await endAll(reporters, end.status);
    return end;
  } catch (error) {
    const status = statusOf(signal.aborted ? signal.reason : error, signal.aborted);
    if (status !== undefined) await endAll(reporters, status);
    throw error;
  }
}

/** Undefined when somebody goes on with the run. */
function statusOf(reason: unknown, isFromOutside: boolean): TrackedEnd | undefined {
  if (reason instanceof StopRequested) return "stopped";
  // A call may hear that the lease is lost before its keeper does; a trainer that lost the model gives the run back.
  const isGivenBack = reason instanceof LeaseLost || reason instanceof ModelLost;
  return isFromOutside || isGivenBack ? undefined : "failed";
}

async function endAll(reporters: readonly MetricReporter[], status: TrackedEnd): Promise<void> {
  await Promise.all(reporters.map((reporter) => reporter.end(status)));
}

function trackersOf(job: TrainingJob, { fetch, log, now }: Parts): Tracker[] {
  const { advanced } = job.config;
  const run: TrackedRun = { id: job.run_id, name: job.run_name, startedAt: now(), config: settingsOf(job) };
  const trackers: Tracker[] = [];
  const { WANDB_API_KEY: apiKey, MLFLOW_TRACKING_TOKEN: token } = job.secrets;
  if (advanced.mlflow_url !== undefined) {
    trackers.push(
      mlflowTracker({
        url: advanced.mlflow_url,
        experiment: advanced.mlflow_experiment,
        token,
        run,
        fetch,
        now,
      }),
    );
  }
  if (advanced.wandb_project !== undefined) {
    if (apiKey === undefined) {
      log.write(
        "warning",
        "trackers",
        "Weights & Biases gets no metrics: the run has no secret WANDB_API_KEY.",
      );
    } else {
      const { wandb_url: url, wandb_project: project, wandb_entity: entity } = advanced;
      trackers.push(wandbTracker({ url, project, entity, apiKey, run, fetch }));
    }
  }
  return trackers;
}

/** What a reader of curves wants to filter by. Addresses stay here: they may name machines, or more. */
const ADDRESSES = new Set(["trainer", "mlflow_url", "wandb_url"]);

function settingsOf({ config, commit_sha, rollout, model }: TrainingJob): Record<string, unknown> {
  const { experiment, training, sampling, checkpoints, advanced } = config;
  const settings = { ...experiment, ...training, ...sampling, ...checkpoints, ...advanced };
  return {
    ...Object.fromEntries(
      Object.entries(settings).filter(([key, value]) => value !== undefined && !ADDRESSES.has(key)),
    ),
    rollout,
    commit_sha,
    model: model.name,
  };
}
