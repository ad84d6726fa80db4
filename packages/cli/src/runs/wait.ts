import { setTimeout as delay } from "node:timers/promises";
import {
  attemptsOf,
  evalRoutes,
  OsmosisError,
  trainingRoutes,
  type EvalRun,
  type TrainingRun,
} from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { formatDuration, formatNumber } from "../output/format.ts";
import type { NextStep, OperationResult } from "../output/result.ts";
import type { ProgressState } from "../output/progress.ts";
import { SILENCE, patiently } from "../platform/patience.ts";
import type { WorkspaceSession } from "../platform/session.ts";
import { RUN_WORD, type RunKind } from "./kind.ts";
import { evalFields, trainingFields } from "./run-fields.ts";

const POLL_MS = 500;

type RunEnd = Omit<OperationResult, "operation" | "resource"> & {
  readonly resource: Readonly<Record<string, unknown>>;
};

/**
 * Stays with a run until it has ended, and shows its progress. Ctrl-C ends the waiting, not the run.
 *
 * @throws OsmosisError `RUN_FAILED` when the run does not finish; its state is in the details
 */
export async function waitForRun(
  context: Context,
  session: WorkspaceSession,
  kind: RunKind,
  name: string,
): Promise<RunEnd> {
  const progress = context.progress();
  const estimate = timeLeft(context.io.now);
  const leaveNote = (): void => {
    progress.stop();
    if (context.mode !== "json") context.note(`${name} goes on. \`osmosis ${kind} stop ${name}\` stops it.`);
  };
  context.io.interrupted.addEventListener("abort", leaveNote, { once: true });
  try {
    for (;;) {
      const state = await patiently(
        context,
        () => readRun(session, kind, name),
        () => progress.update({ label: name, text: SILENCE }),
      );
      progress.update(progressOf(state, estimate));
      if (isFinal(state.run.status)) {
        progress.stop();
        return await endOf(session, state);
      }
      await delay(POLL_MS, undefined, { signal: context.io.interrupted });
    }
  } finally {
    context.io.interrupted.removeEventListener("abort", leaveNote);
    progress.stop();
  }
}

type RunState =
  | { readonly kind: "eval"; readonly run: EvalRun }
  | { readonly kind: "train"; readonly run: TrainingRun };

async function readRun({ client }: WorkspaceSession, kind: RunKind, name: string): Promise<RunState> {
  if (kind === "train") {
    const { training_run: run } = await client.call(trainingRoutes.get, { params: { name } });
    return { kind, run };
  }
  const { eval_run: run, results } = await client.call(evalRoutes.get, { params: { name } });
  return { kind, run: { ...run, results: run.results ?? results } };
}

export function isFinal(status: EvalRun["status"] | TrainingRun["status"]): boolean {
  switch (status) {
    case "pending":
    case "running":
      return false;
    case "finished":
    case "failed":
    case "stopped":
    case "crashed":
      return true;
  }
}

export function progressOf(
  state: RunState,
  estimate: (done: number, total: number) => string,
): ProgressState {
  const { run } = state;
  if (run.status === "pending") return { label: run.name, text: "waiting for a worker" };
  if (state.kind === "train") {
    const { current_step: done, total_steps: total } = state.run;
    const text = [
      state.run.validation === null ? "" : `validation reward ${formatNumber(state.run.validation.reward)}`,
      `last step: reward ${formatNumber(state.run.last_step?.reward)}`,
      `pass rate ${formatNumber(state.run.last_step?.pass_rate)}`,
      estimate(done, total ?? 0),
    ];
    return {
      label: "step",
      ...(total === null ? {} : { done, total }),
      text: text.filter((part) => part !== "").join("   "),
    };
  }
  const { results } = state.run;
  if (results === null) return { label: "rollouts", text: "preparing" };
  const done = results.total_runs;
  const total = results.sampled_rows * attemptsOf(state.run);
  const text = [
    `reward ${formatNumber(results.score)}`,
    `pass rate ${results.graded === 0 ? "–" : formatNumber(results.pass_rate)}`,
    estimate(done, total),
  ];
  return { label: "rollouts", done, total, text: text.filter((part) => part !== "").join("   ") };
}

/** Time left at the pace since the first progress that was seen: preparation before it says nothing about the rest. */
export function timeLeft(now: () => number): (done: number, total: number) => string {
  let first: { at: number; done: number } | undefined;
  let last = { at: 0, done: 0 };
  return (done, total) => {
    if (done > 0) first ??= { at: now(), done };
    if (done !== last.done) last = { at: now(), done };
    if (first === undefined || done <= first.done || total <= done) return "";
    const perUnit = (last.at - first.at) / (done - first.done);
    const leftMs = perUnit * (total - done) - (now() - last.at);
    return `${formatDuration(Math.max(0, leftMs))} left`;
  };
}

async function endOf(session: WorkspaceSession, state: RunState): Promise<RunEnd> {
  const { run } = state;
  if (run.status !== "finished") {
    throw new OsmosisError(
      "RUN_FAILED",
      `The ${RUN_WORD[state.kind]} ${run.name} ${endWord(run.status)}${run.error === null ? "." : `: ${run.error}`}`,
      {
        hint: `\`osmosis ${state.kind} logs ${run.name}\` shows what happened.`,
        details: { run, url: run.platform_url },
      },
    );
  }
  const seconds = secondsOf(run);
  const took = seconds === null ? "" : ` in ${formatDuration(seconds * 1000)}`;
  const message = `${run.name} finished${took}.`;
  if (state.kind === "eval") {
    return {
      kind: "operation",
      status: "success",
      message,
      fields: evalFields(state.run),
      resource: { status: run.status, eval_run: run, results: state.run.results, seconds },
      nextSteps: [
        { command: `osmosis eval info ${run.name}`, description: "see all results" },
        ...faults(state.run),
      ],
    };
  }
  const { checkpoints } = await session.client.call(trainingRoutes.checkpoints, {
    params: { name: run.name },
  });
  const last = checkpoints.toSorted((a, b) => a.checkpoint_step - b.checkpoint_step).at(-1);
  return {
    kind: "operation",
    status: "success",
    message,
    fields: [...trainingFields(state.run), ["Checkpoint", last?.checkpoint_name ?? "–"]],
    resource: { status: run.status, training_run: run, checkpoints, seconds },
    nextSteps:
      last === undefined
        ? []
        : [
            {
              command: `osmosis eval submit configs/eval/CONFIG.toml --model ${last.checkpoint_name}`,
              description: "measure the trained model",
            },
          ],
  };
}

/** Where to look at rollouts without a reward, one step for each outcome. */
function faults({ name, results }: EvalRun): NextStep[] {
  return Object.entries(results?.outcomes ?? {})
    .filter(([outcome]) => outcome !== "ok" && outcome !== "truncated")
    .map(([outcome, count]) => ({
      command: `osmosis eval rollouts ${name} --outcome ${outcome}`,
      description: `see the ${count} without a reward`,
    }));
}

function endWord(status: EvalRun["status"] | TrainingRun["status"]): string {
  return status === "stopped" ? "was stopped" : status;
}

function secondsOf(run: EvalRun | TrainingRun): number | null {
  const { started_at: start, completed_at: end } = run;
  return start === null || end === null ? null : (Date.parse(end) - Date.parse(start)) / 1000;
}
