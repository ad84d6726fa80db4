import { Command, CommanderError } from "commander";
import { setTimeout as delay } from "node:timers/promises";
import manifest from "../package.json" with { type: "json" };
import { takeRootOptions, type RootOptions } from "./arguments.ts";
import { addAuth } from "./commands/auth.ts";
import { addDataset } from "./commands/dataset.ts";
import { addDoctor } from "./commands/doctor.ts";
import { addEval } from "./commands/eval.ts";
import { addModel } from "./commands/model.ts";
import { addQuickstart } from "./commands/quickstart.ts";
import { addRollout } from "./commands/rollout.ts";
import type { Run } from "./commands/run-command.ts";
import { addSecret } from "./commands/secret.ts";
import { addTrain } from "./commands/train.ts";
import { addTrainer } from "./commands/trainer.ts";
import { addUp } from "./commands/up.ts";
import { addWorker } from "./commands/worker.ts";
import { addWorkspace } from "./commands/workspace.ts";
import { createContext, type Context, type OutputMode } from "./context.ts";
import { withDotenv } from "./dotenv.ts";
import { Interrupted, type Io } from "./io.ts";
import { failureJson, failureText, UsageError } from "./output/failure.ts";
import { render } from "./output/render.ts";
import { createStyle } from "./output/style.ts";

/** How long a command may take to clean up after Ctrl-C. */
const GRACE_MS = 15_000;

/**
 * Runs one command line.
 *
 * @returns the exit code: 0 success, 1 a failure, 2 a wrong call, 130 Ctrl-C
 */
export async function runCli(io: Io): Promise<number> {
  const errorStyle = createStyle(io.stderr.isTerminal, io.env);
  let mode: OutputMode = io.argv.includes("--json") ? "json" : "rich";
  let path = "";
  try {
    const root = takeRootOptions(io.argv);
    mode = root.json ? "json" : root.plain ? "plain" : "rich";
    const program = createProgram(
      (work) =>
        async (...args) => {
          const context = createCommandContext(io, root, mode);
          io.stdout.write(render(await work(context, ...args), context));
        },
      io,
    );
    path = commandPath(program, root.rest);
    return await parse(program, root, io);
  } catch (error) {
    if (io.interrupted.aborted || error instanceof Interrupted) {
      if (mode !== "json") io.stderr.write(`${errorStyle.dim("Interrupted.")}\n`);
      return 130;
    }
    io.stderr.write(
      mode === "json"
        ? failureJson(error, path, manifest.version)
        : failureText(error, errorStyle, io.env["OSMOSIS_DEBUG"] === "1"),
    );
    return error instanceof UsageError ? 2 : 1;
  }
}

function createCommandContext(io: Io, root: RootOptions, mode: OutputMode): Context {
  return createContext({
    io,
    version: manifest.version,
    mode,
    env: withDotenv({ env: io.env, cwd: io.cwd, file: root.envFile, platformFlag: root.platform }),
    platformFlag: root.platform,
    style: createStyle(io.stdout.isTerminal, io.env),
    errorStyle: createStyle(io.stderr.isTerminal, io.env),
  });
}

function createProgram(run: Run, io: Io): Command {
  const program = new Command("osmosis")
    .description("Evaluate an agent, train its model by reinforcement learning, measure what it learned.")
    .version(`osmosis ${manifest.version}`, "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    // What follows the name of a command is that one's; what belongs to all was taken out before.
    .enablePositionalOptions()
    .option("--json", "answer with one JSON document (for programs and coding agents)")
    .option("--plain", "answer with plain lines, without colours")
    .option(
      "--platform <url>",
      "the platform to talk to (default: OSMOSIS_PLATFORM_URL, then the workspace's, then your login)",
    )
    .option("--env-file <file>", "read environment variables from this file instead of the nearest .env")
    .configureHelp({ showGlobalOptions: true, helpWidth: Math.min(110, io.stdout.columns()) })
    .addHelpText(
      "after",
      "\nExamples:\n" +
        "  $ osmosis up                        start the platform on this machine\n" +
        "  $ osmosis quickstart                from a data set to a better model, by example\n" +
        "  $ osmosis doctor                    check the workspace around the current folder\n" +
        "  $ osmosis eval submit configs/eval/multiply-local-openai.toml\n",
    );
  addUp(program, run);
  addQuickstart(program, run);
  addDoctor(program, run);
  addAuth(program, run);
  addWorkspace(program, run);
  addDataset(program, run);
  addRollout(program, run);
  addEval(program, run);
  addTrain(program, run);
  addTrainer(program, run);
  addModel(program, run);
  addSecret(program, run);
  addWorker(program, run);
  return program;
}

/** Commander's own answers become ours: help is a success, a wrong call is a `UsageError` with one suggestion. */
async function parse(program: Command, root: RootOptions, io: Io): Promise<number> {
  let said = "";
  const collect = { writeOut: (text: string) => (said += text), writeErr: (text: string) => (said += text) };
  const prepare = (command: Command): void => {
    command.exitOverride().configureOutput(collect).showSuggestionAfterError(false);
    command.commands.forEach(prepare);
  };
  prepare(program);
  const parsing = program.parseAsync([...root.rest], { from: "user" });
  try {
    await Promise.race([parsing, graceAfter(io.interrupted)]);
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.code === "commander.help" || error.exitCode === 0) {
      io.stdout.write(said);
      return 0;
    }
    const { suggest } = await import("./suggestion.ts");
    throw new UsageError(sentence(error.message), suggest(error, program, root.rest));
  }
  io.interrupted.throwIfAborted();
  return 0;
}

/** Rejects when a command has not ended long after Ctrl-C; never before. */
async function graceAfter(interrupted: AbortSignal): Promise<never> {
  await new Promise<void>((resolve) => {
    if (interrupted.aborted) resolve();
    else interrupted.addEventListener("abort", () => resolve(), { once: true });
  });
  await delay(GRACE_MS, undefined, { ref: false });
  throw new Interrupted();
}

/** `dataset upload`, as far as the words name commands. */
function commandPath(program: Command, words: readonly string[]): string {
  const names: string[] = [];
  let at: Command = program;
  for (const word of words) {
    if (word.startsWith("-")) break;
    const next = at.commands.find((command) => command.name() === word);
    if (next === undefined) break;
    names.push(word);
    at = next;
  }
  return names.join(" ");
}

function sentence(message: string): string {
  const text = message.replace(/^error: /, "");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.?]$/.test(text) ? "" : "."}`;
}
