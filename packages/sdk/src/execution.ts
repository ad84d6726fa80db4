/**
 * One execution: the workflow, then the grader, each within its own deadline.
 *
 *   running --workflow ended--> grading --reward--> success
 *      \-- failed, timeout --> failure <-- failed, timeout, no reward --/
 *   cancelled, from everywhere
 */
import { OsmosisError, rewardFault } from "@osmosis/protocol";
import { type Bounded, withDeadline } from "./deadline.ts";
import { failureOf, type RolloutFailure, withoutSecret } from "./failure.ts";
import type { Grader, GraderContext } from "./grader.ts";
import { createRolloutContext, runInRollout, type SampleSource } from "./rollout-context.ts";
import { checkMetrics, type GradedSample, type ProducedSample, sampleOf } from "./sample.ts";
import type { AgentWorkflow } from "./workflow.ts";

/** What to execute. */
export type RolloutJob = {
  readonly rolloutId: string;
  readonly prompt: readonly Record<string, unknown>[];
  readonly label: string | null;
  readonly metadata: Readonly<Record<string, unknown>> | null;
  readonly chatCompletionsUrl: string;
  readonly apiKey: string | null;
  readonly grade: boolean;
  /** Null means unbounded. */
  readonly agentTimeoutMs: number | null;
  readonly graderTimeoutMs: number | null;
  readonly artifactsDir: string | null;
};

export type RolloutResult =
  | { readonly status: "success"; readonly sample: GradedSample }
  | {
      readonly status: "failure";
      readonly failure: RolloutFailure;
      /** What there is of the sample: without a reward, and perhaps not to its end. */
      readonly sample: GradedSample | null;
    }
  | { readonly status: "cancelled"; readonly reason: CancelReason; readonly sample: GradedSample | null };

/** Why a rollout was cancelled: somebody asked, its owner stopped polling, or the server is stopping. */
export type CancelReason = "requested" | "lease_expired" | "shutdown";

export type ExecutionParts = {
  readonly workflow: new () => AgentWorkflow<unknown>;
  readonly workflowConfig: unknown;
  readonly grader: (new () => Grader<unknown>) | undefined;
  readonly graderConfig: unknown;
};

export type ExecutionOptions = {
  /** Aborted with a `CancelReason`. */
  readonly signal: AbortSignal;
  /** Time that the agent's deadline has lost to the queue already. */
  readonly queuedMs: number;
  readonly graceMs: number;
  readonly now: () => number;
  readonly onStatus: (status: "running" | "grading") => void;
  /** Stack traces and other things for the author of the workflow, one event per call. */
  readonly log: (text: string) => void;
};

/** Runs workflow and grader once. It never throws: what goes wrong in user code is a result. */
export async function execute(
  job: RolloutJob,
  parts: ExecutionParts,
  options: ExecutionOptions,
): Promise<RolloutResult> {
  const { apiKey } = job;
  const log = (text: string) => options.log(withoutSecret(text, apiKey));
  const result = await executeBoth(job, parts, { ...options, log });
  if (result.status !== "failure") return result;
  const { failure } = result;
  return { ...result, failure: { ...failure, message: withoutSecret(failure.message, apiKey) } };
}

async function executeBoth(
  job: RolloutJob,
  parts: ExecutionParts,
  options: ExecutionOptions,
): Promise<RolloutResult> {
  options.onStatus("running");
  const produced = await runWorkflow(job, parts, options);
  if (produced.type !== "sample") return ended(produced.stopped, produced.partial);

  const sample = ungraded(produced.sample);
  if (!job.grade) return { status: "success", sample };
  options.onStatus("grading");
  const graded = await runGrader(job, parts, produced.sample, options);
  if (graded.type !== "sample") return ended(graded, sample);
  return { status: "success", sample: graded.sample };
}

type Stopped =
  | { readonly type: "failure"; readonly failure: RolloutFailure }
  | { readonly type: "cancelled"; readonly reason: CancelReason };

function ended(stopped: Stopped, sample: GradedSample | null): RolloutResult {
  return stopped.type === "failure"
    ? { status: "failure", failure: stopped.failure, sample }
    : { status: "cancelled", reason: stopped.reason, sample };
}

function ungraded(sample: ProducedSample): GradedSample {
  return { ...sample, reward: null, removeSample: false };
}

/** `partial` is the conversation as far as a source recorded it. */
type Produced =
  | { readonly type: "sample"; readonly sample: ProducedSample }
  | { readonly type: "stopped"; readonly stopped: Stopped; readonly partial: GradedSample | null };

async function runWorkflow(
  job: RolloutJob,
  parts: ExecutionParts,
  options: ExecutionOptions,
): Promise<Produced> {
  const name = parts.workflow.name || "AgentWorkflow";
  let source: SampleSource | undefined;
  const bounded = await withDeadline(
    async (signal) => {
      const { rolloutId, chatCompletionsUrl, apiKey } = job;
      const over = new AbortController();
      const context = createRolloutContext({
        rolloutId,
        chatCompletionsUrl,
        apiKey,
        signal: AbortSignal.any([signal, over.signal]),
        onSource: (added) => (source = added),
      });
      const returned = await runInRollout(context, async () =>
        new parts.workflow().run({
          rolloutId,
          prompt: job.prompt,
          config: structuredClone(parts.workflowConfig),
          metadata: job.metadata,
          artifactsDir: job.artifactsDir,
          signal,
        }),
      ).finally(() => over.abort(new DOMException("The workflow has returned.", "AbortError")));
      return sampleOf(returned, source, name);
    },
    { ...options, timeoutMs: remaining(job.agentTimeoutMs, options.queuedMs) },
  );
  if (bounded.type === "value") return { type: "sample", sample: bounded.value };
  const stopped = stop(bounded, job, options, { phase: "workflow", thrower: `${name}.run` });
  return { type: "stopped", stopped, partial: partialSample(source, name) };
}

function partialSample(source: SampleSource | undefined, name: string): GradedSample | null {
  try {
    return source ? ungraded(sampleOf(undefined, source, name)) : null;
  } catch {
    // Why the rollout failed is known already; a source with nothing to tell is no news.
    return null;
  }
}

async function runGrader(
  job: RolloutJob,
  parts: ExecutionParts,
  sample: ProducedSample,
  options: ExecutionOptions,
): Promise<Stopped | { type: "sample"; sample: GradedSample }> {
  const { grader } = parts;
  if (!grader) {
    const message =
      "Grading was asked for, but there is no grader. Give the backend a grader, or ask for the rollout with grade false.";
    return { type: "failure", failure: { phase: "grader", category: "validation_error", message } };
  }
  const name = grader.name || "Grader";
  const verdict: Verdict = { reward: null, removeSample: false, metrics: {} };
  const bounded = await withDeadline(
    async (signal) => {
      const context = graderContext(job, structuredClone(parts.graderConfig), {
        sample,
        verdict,
        name,
        signal,
      });
      const returned = await new grader().grade(context);
      if (returned !== undefined) context.setReward(returned);
    },
    { ...options, timeoutMs: job.graderTimeoutMs },
  );
  if (bounded.type !== "value") {
    return stop(bounded, job, options, { phase: "grader", thrower: `${name}.grade` });
  }
  const { reward, removeSample } = verdict;
  if (reward === null && !removeSample) {
    const message = `${name}.grade set no reward. Call ctx.setReward(…) on every path, or return the reward.`;
    return { type: "failure", failure: { phase: "grader", category: "validation_error", message } };
  }
  const metrics = { ...sample.metrics, ...verdict.metrics };
  return { type: "sample", sample: { ...sample, metrics, reward, removeSample } };
}

type Verdict = { reward: number | null; removeSample: boolean; metrics: Record<string, number> };

function graderContext(
  job: RolloutJob,
  config: unknown,
  given: { sample: ProducedSample; verdict: Verdict; name: string; signal: AbortSignal },
): GraderContext<unknown> {
  const { sample, verdict, name, signal } = given;
  const { messages, metrics, extraFields } = sample;
  return {
    rolloutId: job.rolloutId,
    sample: { messages, metrics, extraFields },
    label: job.label,
    config,
    metadata: job.metadata,
    artifactsDir: job.artifactsDir,
    signal,
    setReward(reward) {
      // User code in plain JavaScript may give anything.
      if (typeof reward !== "number" || rewardFault(reward) !== undefined) {
        const shown = typeof reward === "string" ? `the text ${JSON.stringify(reward)}` : String(reward);
        throw new OsmosisError("VALIDATION", `${name} set the reward to ${shown}.`, {
          hint: "A reward is a finite number, usually between 0 and 1, and never beyond a billion.",
        });
      }
      verdict.reward = reward;
    },
    addMetrics(added) {
      const own = checkMetrics(added, name);
      // What a rollout may have counts those of workflow and grader together.
      checkMetrics({ ...metrics, ...verdict.metrics, ...own }, name);
      Object.assign(verdict.metrics, own);
    },
    removeSample() {
      verdict.removeSample = true;
    },
  };
}

/** The agent's deadline runs from admission: time in the queue counts. */
function remaining(timeoutMs: number | null, queuedMs: number): number | null {
  return timeoutMs === null ? null : timeoutMs - queuedMs;
}

function stop(
  bounded: Exclude<Bounded<unknown>, { type: "value" }>,
  job: RolloutJob,
  options: ExecutionOptions,
  where: { phase: "workflow" | "grader"; thrower: string },
): Stopped {
  const { phase, thrower } = where;
  switch (bounded.type) {
    case "error": {
      const failure = isOwnVerdict(bounded.error)
        ? { phase, category: "validation_error" as const, message: withHint(bounded.error) }
        : failureOf(bounded.error, phase, thrower);
      options.log(`Rollout ${job.rolloutId}: ${failure.message}${stackOf(bounded.error)}`);
      return { type: "failure", failure };
    }
    case "timeout": {
      const message =
        timeoutMessage(job, options, phase) + unstopped(bounded.stopped, thrower, options.graceMs);
      options.log(`Rollout ${job.rolloutId}: ${message}`);
      return { type: "failure", failure: { phase, category: "timeout", message } };
    }
    case "cancelled": {
      const late = unstopped(bounded.stopped, thrower, options.graceMs);
      if (late !== "") options.log(`Rollout ${job.rolloutId} was cancelled${late}`);
      return { type: "cancelled", reason: cancelReasonOf(bounded.reason) };
    }
    default:
      return bounded satisfies never;
  }
}

function timeoutMessage(job: RolloutJob, options: ExecutionOptions, phase: "workflow" | "grader"): string {
  const timeoutMs = (phase === "workflow" ? job.agentTimeoutMs : job.graderTimeoutMs) ?? 0;
  const message = `${phase} exceeded its ${timeoutMs / 1000}s deadline`;
  const queued = phase === "workflow" && options.queuedMs >= 100;
  return queued
    ? `${message}, of which ${(options.queuedMs / 1000).toFixed(1)}s were spent in the queue`
    : message;
}

function unstopped(stopped: boolean, thrower: string, graceMs: number): string {
  if (stopped) return "";
  return `; ${thrower} did not stop within ${graceMs / 1000}s and may still be running. Pass ctx.signal to what it waits for.`;
}

/** True for the errors that this package throws at user code: they name the class and the remedy already. */
function isOwnVerdict(error: unknown): error is OsmosisError {
  return error instanceof OsmosisError && (error.code === "VALIDATION" || error.code === "CONFLICT");
}

function withHint(error: OsmosisError): string {
  return error.hint === undefined ? error.message : `${error.message} ${error.hint}`;
}

function stackOf(error: unknown): string {
  return error instanceof Error && error.stack !== undefined ? `\n${error.stack}` : "";
}

/** What a signal was aborted with; anything unknown counts as a request. */
export function cancelReasonOf(reason: unknown): CancelReason {
  return reason === "lease_expired" || reason === "shutdown" ? reason : "requested";
}
