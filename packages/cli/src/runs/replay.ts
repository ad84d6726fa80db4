import { setTimeout as delay } from "node:timers/promises";
import { OsmosisError, replayRoutes, type Replay, type ReplayedStep } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { render } from "../output/render.ts";
import type { DetailResult, Table } from "../output/result.ts";
import { SILENCE, patiently } from "../platform/patience.ts";
import { openWorkspaceSession, type WorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";

const POLL_MS = 300;

/** What decides whether a step is the same, in the words of a person; the others are in `--json`. */
const SHOWN: readonly (readonly [key: string, title: string])[] = [
  ["train/loss", "loss"],
  ["train/grad_norm", "gradient norm"],
  ["train/entropy_loss", "entropy"],
  ["train/tokens", "tokens"],
];

/**
 * Repeats a training step from the stored rollouts, and compares it with what the run measured.
 *
 * @throws OsmosisError `RUN_FAILED` when the replay fails, `VALIDATION` when a step is not what it was
 */
export async function replayStep(
  context: Context,
  name: string,
  options: { readonly step?: number; readonly set?: readonly string[] },
): Promise<DetailResult> {
  const set = settingsOf(options.set ?? []);
  const session = await openWorkspaceSession(context);
  const started = await session.client.call(replayRoutes.start, {
    params: { name },
    body: {
      ...(options.step === undefined ? {} : { step: options.step }),
      ...(Object.keys(set).length === 0 ? {} : { set }),
    },
  });
  const replay = await follow(context, session, started);
  if (replay.status !== "finished") {
    throw new OsmosisError(
      "RUN_FAILED",
      `The replay of step ${replay.step} of ${replay.training_run_name} ${replay.status}${replay.error === null ? "." : `: ${replay.error}`}`,
      {
        hint:
          replay.error === null ? "Run the command again." : "Mend what it names, and run the command again.",
        details: { replay },
      },
    );
  }
  const result = resultOf(replay, session);
  const unequal = replay.steps.filter(({ equal }) => equal === false);
  const [first] = unequal;
  if (first === undefined) return result;
  // The whole picture first; the error that follows names only what is wrong.
  context.io.stdout.write(render(result, context));
  throw new OsmosisError(
    "VALIDATION",
    `${unequal.length === 1 ? `Step ${first.step} is` : `${unequal.length} steps, from step ${first.step} on, are`} not what ${unequal.length === 1 ? "it was" : "they were"} in ${replay.training_run_name}.`,
    {
      hint: "What was stored, the engine, or the machine has changed since. Compare with a replay of an earlier step.",
      details: { unequal_steps: unequal.map(({ step }) => step), replay_id: replay.id },
    },
  );
}

/** `advanced.loss=cispo` and the like; values are JSON where they can be, else texts. */
function settingsOf(texts: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(
    texts.map((text) => {
      const [key = "", ...rest] = text.split("=");
      if (!/^\w+\.\w+$/.test(key) || rest.length === 0) {
        throw new UsageError(`--set ${text} is not a setting.`, "Write it as in --set advanced.loss=cispo.");
      }
      const value = rest.join("=");
      try {
        return [key, JSON.parse(value) as unknown];
      } catch {
        return [key, value];
      }
    }),
  );
}

/** Stays with a replay until it has ended. Ctrl-C ends it: nobody else waits for it. */
async function follow(context: Context, { client }: WorkspaceSession, started: Replay): Promise<Replay> {
  const { io } = context;
  const params = { name: started.training_run_name, replay_id: started.id };
  const progress = context.progress();
  let replay = started;
  try {
    for (;;) {
      progress.update(progressOf(replay));
      if (replay.completed_at !== null) return replay;
      await delay(POLL_MS, undefined, { signal: io.interrupted });
      replay = await patiently(
        context,
        () => client.call(replayRoutes.get, { params }),
        () => progress.update({ label: "Replay", text: SILENCE }),
      );
    }
  } catch (error) {
    if (io.interrupted.aborted) {
      const signal = AbortSignal.timeout(3000);
      await client.call(replayRoutes.stop, { params, body: {}, signal }).catch(() => {});
    }
    throw error;
  } finally {
    progress.stop();
  }
}

function progressOf({ status, step, from_step: from, current_step: current, steps }: Replay) {
  if (status === "pending" || from === null) return { label: "Replay", text: "waiting for a worker" };
  const start = from === 0 ? "from the beginning" : `from the state after step ${from}`;
  const unequal = steps.filter(({ equal }) => equal === false).length;
  return {
    label: `Replaying up to step ${step}`,
    done: current - from,
    total: step - from,
    text: unequal === 0 ? start : `${start}; ${unequal} not equal`,
  };
}

function resultOf(replay: Replay, { workspace }: WorkspaceSession): DetailResult {
  const last = replay.steps.find(({ step }) => step === replay.step);
  const earlier = replay.steps.filter(({ step }) => step !== replay.step);
  const isOther = Object.keys(replay.set).length > 0;
  const settings = Object.entries(replay.set).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
  return {
    kind: "detail",
    data: {
      training_run_name: replay.training_run_name,
      step: replay.step,
      from_step: replay.from_step,
      set: replay.set,
      recorded: last?.recorded ?? {},
      replayed: last?.replayed ?? {},
      equal: replay.equal,
      steps: replay.steps,
      replay_id: replay.id,
    },
    title: `Step ${replay.step} of ${replay.training_run_name}`,
    fields: [
      ["Equal", verdict(replay)],
      [
        "Began",
        replay.from_step === 0
          ? "at the beginning of the run"
          : `with the state after step ${replay.from_step}`,
      ],
      ...(isOther ? [["Set", settings.join("\n")] as const] : []),
    ],
    tables: [
      ...(last === undefined
        ? []
        : [{ title: `Step ${last.step}`, table: isOther ? otherTable(last) : metricsTable(last) }]),
      ...(earlier.length === 0 ? [] : [{ title: "On the way", table: stepsTable(earlier) }]),
    ],
    extras: workspaceExtras(workspace),
  };
}

function verdict({ equal, steps, set }: Replay): string {
  const compared = steps.filter((one) => one.equal !== null).length;
  if (equal === null) return `not compared: other settings (${Object.keys(set).join(", ")})`;
  const count = compared === 1 ? "1 step" : `${compared} steps`;
  return equal ? `yes, to the last bit (${count} compared)` : `no (${count} compared)`;
}

function metricsTable({ recorded, replayed }: ReplayedStep): Table {
  return {
    headers: ["METRIC", "RECORDED", "REPLAYED", "EQUAL"],
    rows: SHOWN.filter(([key]) => replayed[key] !== undefined || recorded[key] !== undefined).map(
      ([key, title]) => [
        title,
        exact(recorded[key]),
        exact(replayed[key]),
        recorded[key] === replayed[key] ? "yes" : "no",
      ],
    ),
    numeric: ["RECORDED", "REPLAYED"],
  };
}

/** What another setting makes of the step; nobody expects it to be equal. */
function otherTable({ recorded, replayed }: ReplayedStep): Table {
  return {
    headers: ["METRIC", "RECORDED", "WITH THE SETTING"],
    rows: SHOWN.map(([key, title]) => [title, exact(recorded[key]), exact(replayed[key])]),
    numeric: ["RECORDED", "WITH THE SETTING"],
  };
}

function stepsTable(steps: readonly ReplayedStep[]): Table {
  return {
    headers: ["STEP", "LOSS RECORDED", "LOSS REPLAYED", "GRADIENT NORM", "EQUAL"],
    rows: steps.map(({ step, recorded, replayed, equal }) => [
      String(step),
      exact(recorded["train/loss"]),
      exact(replayed["train/loss"]),
      exact(replayed["train/grad_norm"]),
      equal === true ? "yes" : "no",
    ]),
    numeric: ["STEP", "LOSS RECORDED", "LOSS REPLAYED", "GRADIENT NORM"],
  };
}

/** Every digit counts here. */
function exact(value: number | undefined): string {
  return value === undefined ? "–" : String(value);
}
