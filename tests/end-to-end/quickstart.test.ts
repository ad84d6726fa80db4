import { readFile, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { personalEnvironment, startOsmosis, type RunningCommand } from "./support/command.ts";
import { nothingLeft, processesOf } from "./support/processes.ts";
import { until } from "./support/until.ts";

/** The quickstart in one folder: interrupted again and again, then to its end. */

let home: string;
let data: string;
let workspace: string;

beforeAll(async () => {
  home = await realpath(await mkdtemp(join(tmpdir(), "osmosis-quickstart-")));
  data = join(home, "data");
  workspace = join(data, "quickstart/workspace");
});

afterAll(() => rm(home, { recursive: true, force: true, maxRetries: 5 }));

const start = (): RunningCommand =>
  startOsmosis(["quickstart", "--exit", "--json", "--data", data, "--port", "0"], {
    cwd: home,
    env: personalEnvironment(home),
  });

/** Starts it, presses Ctrl-C (or worse) when it says so, and sees that everything ends. */
async function interruptAt(moment: string, signal: "SIGINT" | "SIGKILL" = "SIGINT"): Promise<string> {
  const quickstart = start();
  let hasEnded = false;
  void quickstart.ended.then(() => (hasEnded = true));
  await until(`the quickstart says ${moment}`, () => {
    if (hasEnded) throw new Error(`it has ended: ${quickstart.stderr()}`);
    return quickstart.stderr().includes(moment);
  });
  expect((await processesOf(data)).length).toBeGreaterThan(0);
  quickstart.kill(signal);
  const ended = await quickstart.ended;
  expect(ended).toMatchObject({ code: signal === "SIGINT" ? 130 : null, stdout: "" });
  await nothingLeft(data);
  return ended.stderr;
}

test("Ctrl-C while it makes the workspace leaves no process", async () => {
  await interruptAt("osmosis workspace create");
});

test("Ctrl-C while it evaluates leaves no process", async () => {
  await interruptAt("rollouts ");
  await shorten();
});

test("SIGKILL while it evaluates leaves no process, either", async () => {
  await interruptAt("rollouts ", "SIGKILL");
});

test("Ctrl-C while it trains leaves no process", async () => {
  expect(await interruptAt("step 1/")).toContain("Continuing in the workspace of an earlier quickstart");
});

test("it continues after all that, and ends with one JSON line and nothing left running", async () => {
  const ended = await start().ended;
  expect({ code: ended.code, said: ended.code === 0 ? "" : ended.stderr }).toEqual({ code: 0, said: "" });
  await nothingLeft(data);

  expect(ended.stdout.trim().split("\n")).toHaveLength(1);
  const rate = expect.toSatisfy((value: number) => value >= 0 && value <= 1);
  expect(JSON.parse(ended.stdout)).toMatchObject({
    schema_version: 1,
    status: "success",
    operation: "quickstart",
    baseline: { pass_rate: rate, n: 24, temperature: 0 },
    trained: { pass_rate: rate, n: 24, temperature: 0 },
    train: { steps: 2, seconds: expect.any(Number) },
    seconds: expect.any(Number),
    workspace,
  });
  for (const command of [
    "doctor",
    "auth whoami",
    "dataset upload data/multiply.jsonl",
    "eval submit configs/eval/multiply-local-openai.toml",
    "train submit configs/training/multiply-local-openai.toml",
  ]) {
    expect(ended.stderr).toContain(`$ osmosis ${command}`);
  }
}, 300_000);

/** Changes the configurations in the clone, which is what a person would change. */
async function shorten(): Promise<void> {
  await change("configs/eval/multiply-local-openai.toml", /^limit = .*$/m, "limit = 24");
  await change("configs/training/multiply-local-openai.toml", /^seed = .*$/m, "seed = 1\nmax_steps = 2");
  await change("configs/training/multiply-local-openai.toml", /^eval_interval = .*$/m, "eval_interval = 0");
}

async function change(file: string, what: RegExp, to: string): Promise<void> {
  const path = join(workspace, file);
  const text = await readFile(path, "utf8");
  expect(text).toMatch(what);
  await writeFile(path, text.replace(what, to));
}
