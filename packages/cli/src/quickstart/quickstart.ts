import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import type { QuickstartOptions } from "../commands/quickstart.ts";
import type { Context } from "../context.ts";
import { formatDuration } from "../output/format.ts";
import { render } from "../output/render.ts";
import type { NextStep, OperationResult, SilentResult } from "../output/result.ts";
import { dataFolder, pathCommand } from "../up/data-folder.ts";
import { createCommandRunner } from "./cli-child.ts";
import { comparisonTable, measurementOf, TrainEnvelope, type Measurement } from "./outcome.ts";
import { findOrStartPlatform, type QuickstartPlatform } from "./platform-step.ts";
import { planWorkspace, repointClone, stopLeftovers, WORKSPACE_NAME } from "./workspace-step.ts";

const EVAL_CONFIG = "configs/eval/multiply-local-openai.toml";
const TRAIN_CONFIG = "configs/training/multiply-local-openai.toml";
const DATA_FILE = "data/multiply.jsonl";

const ABOUT_THE_MODEL = `The model is osmosis/tiny-agent, 0.9 million parameters, made for this example by supervised training on synthetic
conversations. Its habits were chosen to get in the way: some phrasings it answers from memory without the tool, for
some it rounds. Training by rewards teaches it no new skill: it makes it use the tool always and keep the digits, also
in phrasings and with numbers that it never met. packages/engine/models/tiny-agent/README.md says it all.`;

/**
 * From nothing to a better model, by example. Everything after the platform's start is the `osmosis` command itself,
 * in child processes, and each step shows what it runs. Ctrl-C at any moment ends every process.
 */
export async function quickstart(
  context: Context,
  options: QuickstartOptions,
): Promise<OperationResult | SilentResult> {
  const { io } = context;
  const journal = createJournal(context);
  const folder = dataFolder(context, options.data);
  journal.say(`Osmosis quickstart. Everything it makes is in ${folder}.\n`);
  const platform = await journal.step("platform", "Start the platform", "osmosis up", async () => {
    const found = await findOrStartPlatform(context, folder, options);
    journal.say(
      found.kind === "found" ? `  Found it running on ${found.url}.\n` : `  It listens on ${found.url}.\n`,
    );
    return found;
  });
  let isStopped = false;
  const stop = async (): Promise<void> => {
    if (isStopped || platform.kind === "found") return;
    isStopped = true;
    journal.say("Stopping the platform …\n");
    await platform.stop();
  };
  try {
    const result = await Promise.race([
      runSteps(context, { folder, platform, journal, isEnding: options.exit === true }),
      ...(platform.kind === "started" ? [platform.failed] : []),
    ]);
    if (options.exit === true || platform.kind === "found") {
      await stop();
      return result;
    }
    io.stdout.write(renderIn(context, result));
    journal.say(
      `\nSign in to the dashboard: ${platform.signInUrl}\nThe platform keeps running. Ctrl-C ends it.\n`,
    );
    await Promise.race([aborted(io.interrupted), platform.failed]);
    return { kind: "silent" };
  } finally {
    await stop();
  }
}

type Journal = ReturnType<typeof createJournal>;

/** Says what happens, and keeps the seconds of each phase. With `--json` it speaks on stderr: stdout is the answer. */
function createJournal(context: Context) {
  const { io, mode } = context;
  const sink = mode === "json" ? io.stderr : io.stdout;
  const style = mode === "json" ? context.errorStyle : context.style;
  const startedAt = io.now();
  const phases: Record<string, number> = {};
  return {
    phases,
    seconds: () => seconds(io.now() - startedAt),
    say: (text: string) => sink.write(text),
    async step<T>(phase: string, title: string, command: string, work: () => Promise<T>): Promise<T> {
      sink.write(`\n${style.bold(title)}\n  ${style.cyan(`$ ${command}`)}\n`);
      const from = io.now();
      const result = await work();
      phases[phase] = seconds(io.now() - from);
      sink.write(`  ${style.green("✓")} ${style.dim(formatDuration(io.now() - from))}\n`);
      return result;
    },
  };
}

async function runSteps(
  context: Context,
  parts: { folder: string; platform: QuickstartPlatform; journal: Journal; isEnding: boolean },
): Promise<OperationResult> {
  const { folder, platform, journal } = parts;
  const { io } = context;
  const run = createCommandRunner(context, platform.url);
  const workspace = join(folder, "quickstart", "workspace");
  const command = (
    phase: string,
    title: string,
    args: readonly string[],
    cwd = workspace,
  ): Promise<unknown> => journal.step(phase, title, `osmosis ${args.join(" ")}`, () => run(args, { cwd }));

  await command("login", "Sign the command line in", ["auth", "login", "--local", "--data", folder], io.cwd);

  const listing = await run(["workspace", "list"], { cwd: io.cwd });
  const plan = await planWorkspace(context, { folder: workspace, listing });
  journal.say(`\n${plan.note}\n`);
  if (plan.kind === "continue") {
    await repointClone(context, { folder: workspace, cloneUrl: plan.cloneUrl, platformUrl: platform.url });
    journal.phases["workspace"] = 0;
  } else {
    await command("workspace", "Make a workspace with its Git repository", plan.args, io.cwd);
  }
  const leftovers = plan.kind === "create" ? [] : await stopLeftovers(run, workspace);
  if (leftovers.length > 0) journal.say(`Stopped what was left unfinished: ${leftovers.join(", ")}.\n`);
  await command("doctor", "Check the workspace", ["doctor"]);
  await command("whoami", "Who am I?", ["auth", "whoami"]);
  const replace = plan.kind === "create" ? [] : ["--overwrite", "--yes"];
  await command("dataset", "Bring the data set", ["dataset", "upload", DATA_FILE, ...replace]);

  journal.say(`\n${ABOUT_THE_MODEL}\n`);
  const evaluate = ["eval", "submit", EVAL_CONFIG, "--yes", "--wait"];
  const baseline = measurementOf(
    await command("baseline", "Measure the base model on held-out rows", evaluate),
  );
  sayMeasurement(journal, baseline);

  const train = ["train", "submit", TRAIN_CONFIG, "--yes", "--wait"];
  const trained = TrainEnvelope.parse(
    await command("train", "Train it by reinforcement learning, on rewards alone", train),
  ).resource;
  const checkpoint = trained.checkpoints.toSorted((a, b) => a.checkpoint_step - b.checkpoint_step).at(-1);
  if (checkpoint === undefined) {
    throw new OsmosisError("RUN_FAILED", `The training run ${trained.name} finished without a checkpoint.`, {
      hint: `\`osmosis train logs ${trained.name}\` shows what happened.`,
    });
  }
  const measureAgain = [...evaluate.slice(0, 3), "--model", checkpoint.checkpoint_name, ...evaluate.slice(3)];
  const after = measurementOf(
    await command("trained", "Measure the trained model on the same rows", measureAgain),
  );
  sayMeasurement(journal, after);

  return {
    kind: "operation",
    operation: "quickstart",
    status: "success",
    message: `On ${after.n} held-out rows the pass rate went from ${baseline.pass_rate.toFixed(3)} to ${after.pass_rate.toFixed(3)}.`,
    fields: [
      ["Checkpoint", `${checkpoint.checkpoint_name} (step ${checkpoint.checkpoint_step})`],
      ["Training run", trained.url],
      ["Platform", platform.url],
      ["Workspace", workspace],
      ["Took", formatDuration(journal.seconds() * 1000)],
    ],
    tables: [
      {
        title: `The same ${after.n} held-out rows, before and after`,
        table: comparisonTable(baseline, after),
      },
    ],
    resource: { workspace: WORKSPACE_NAME, folder: workspace },
    nextSteps: [
      ...firstSteps(context, parts.isEnding),
      { command: `cd ${workspace}`, description: "your workspace: a Git repository" },
      { command: `osmosis train info ${trained.name}`, description: "the metrics of the training" },
      {
        command: `osmosis model info ${checkpoint.checkpoint_name}`,
        description: "the files of the checkpoint",
      },
      { command: "osmosis rollout init my-agent", description: "begin a task of your own" },
    ],
    extras: {
      baseline,
      trained: after,
      train: { run: trained.name, steps: trained.training_run.current_step, seconds: trained.seconds },
      checkpoint: checkpoint.checkpoint_name,
      seconds: journal.seconds(),
      workspace,
      url: platform.url,
      phases: journal.phases,
    },
  };
}

/** What has to be done before `osmosis` can be typed in another terminal. */
function firstSteps({ env }: Context, isEnding: boolean): NextStep[] {
  const command = pathCommand(env);
  return [
    ...(command === undefined ? [] : [{ command, description: "puts `osmosis` on the path of your shell" }]),
    ...(isEnding ? [{ command: "osmosis up", description: "starts the platform again" }] : []),
  ];
}

function sayMeasurement(journal: Journal, measured: Measurement): void {
  const at = measured.temperature === null ? "" : `, temperature ${measured.temperature}`;
  journal.say(`  Pass rate ${measured.pass_rate.toFixed(3)} (n=${measured.n}${at})\n`);
}

function renderIn(context: Context, result: OperationResult): string {
  return `${context.mode === "rich" ? "\n" : ""}${render(result, context)}`;
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

function seconds(milliseconds: number): number {
  return Math.round(milliseconds / 10) / 100;
}
