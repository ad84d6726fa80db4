import { createHash } from "node:crypto";
import { appendFile, cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CHECKOUT, runProgram, startOsmosis, type Ended } from "./support/command.ts";
import { FAULTY, FAULTY_ROWS, ROWS, addFaultyRollouts } from "./support/faulty-rollouts.ts";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";
import { processesOf } from "./support/processes.ts";
import { evalEnd, recordedRollouts } from "./support/runs.ts";

/**
 * What goes wrong on the way of a run, through the real command, platform, worker and rollout server: each fault ends in a
 * message with its place and its remedy, and in a final state that is true.
 */

let platform: TestPlatform;

beforeAll(async () => {
  platform = await startTestPlatform({
    env: { OSMOSIS_ROLLOUT_START_TIMEOUT_S: "8", OSMOSIS_ROLLOUT_SILENCE_TIMEOUT_S: "4" },
  });
  await addFaultyRollouts(platform.workspace);
  await platform.push("Add faults");
  await platform.answerOf("dataset", "upload", "data/multiply.jsonl");
}, 180_000);

afterAll(async () => {
  await platform?.[Symbol.asyncDispose]();
});

type Failure = { code: string; message: string; hint?: string; details: Record<string, unknown> };

function failureOf(ended: Ended): Failure {
  // The command's own envelope; with warnings before it.
  const line = ended.stderr.trim().split("\n").at(-1) ?? "";
  return (JSON.parse(line) as { error: Failure }).error;
}

async function configure(entrypoint: string, lines: readonly string[] = []): Promise<string> {
  const file = `configs/eval/${entrypoint.replace(/\W/g, "-")}.toml`;
  const text = [
    "[experiment]",
    `rollout = "${FAULTY}"`,
    `entrypoint = "${entrypoint}"`,
    'model_path = "osmosis/tiny-agent"',
    'dataset = "multiply"',
    "[evaluation]",
    `limit = ${ROWS}`,
    "batch_size = 1",
    "agent_workflow_timeout_s = 3",
    "grader_timeout_s = 3",
    "[advanced]",
    "max_tokens = 64",
    "[secrets]",
    ...(lines.length === 0 ? ["required = []"] : lines),
  ];
  await writeFile(join(platform.workspace, file), text.join("\n"));
  return file;
}

const submit = (file: string) => platform.osmosis("eval", "submit", file, "--yes", "--wait", "--json");

/** Submits, waits, and checks that the run failed in all places alike. */
async function failedRun(entrypoint: string): Promise<{ name: string; error: string }> {
  const ended = await submit(await configure(entrypoint));
  expect(ended.code).toBe(1);
  const failure = failureOf(ended);
  expect(failure.code).toBe("RUN_FAILED");
  expect(failure.hint).toContain("osmosis eval logs");
  // The run of the details is the platform's answer.
  const { name, error } = failure.details["run"] as { name: string; error: string };
  expect(failure.message).toContain(error);
  const { eval_run: run } = await evalEnd(platform.client, name);
  expect(run).toMatchObject({ status: "failed", error });
  expect(run.completed_at).not.toBeNull();
  return { name, error };
}

describe("an entrypoint", () => {
  test("that throws is named, with its own words", async () => {
    const { error } = await failedRun("throws.ts");
    expect(error).toContain("rollouts/faulty/throws.ts exited with code 1 before it listened");
    expect(error).toContain("the toy box is empty");
    expect(error).toContain("Start it by hand");
  });

  test("that never listens is named after its time, with what it printed", async () => {
    const { error } = await failedRun("never-listens.ts");
    expect(error).toMatch(
      /rollouts\/faulty\/never-listens\.ts did not listen on port \d+ within 8 s: thinking/,
    );
    expect(error).toContain("_OSMOSIS_ROLLOUT_PORT");
  });

  test("that hangs before it listens is named, and ended", async () => {
    const { error } = await failedRun("hangs.ts");
    expect(error).toContain("rollouts/faulty/hangs.ts did not listen");
    expect((await processesOf(platform.data)).filter(({ command }) => command.includes("hangs.ts"))).toEqual(
      [],
    );
  });

  test("that dies once is started again, and only the rollouts that it had are lost", async () => {
    const ended = await submit(await configure("dies-once.ts"));
    expect(ended.code).toBe(0);
    const { resource } = JSON.parse(ended.stdout) as { resource: { name: string } };
    const { eval_run: run } = await evalEnd(platform.client, resource.name);
    expect(run).toMatchObject({ status: "finished" });
    const rollouts = await recordedRollouts(platform.client, "eval", resource.name);
    expect(rollouts.filter(({ outcome }) => outcome === "ok")).toHaveLength(ROWS - 1);
    expect(rollouts.filter(({ outcome }) => outcome !== "ok")).toMatchObject([
      { row_index: 3, outcome: "lost", reward: null, error: expect.stringContaining("exit code 9") },
    ]);
    const logs = await platform.osmosis("eval", "logs", resource.name, "--plain");
    expect(logs.stdout).toContain("It is started again (1 of 3 times)");
  });

  test("that listens and dies is named with its exit code, and the rollouts before it stay", async () => {
    const { name, error } = await failedRun("listens-and-dies.ts");
    expect(error).toContain(
      "rollouts/faulty/listens-and-dies.ts ended in the middle of the run, with exit code 9",
    );
    expect(error).toContain("started again 3 times before");
    await expectFirstRowsKept(name);
  });

  test("that hangs in a rollout is named, and the rollouts before it stay", async () => {
    const { name, error } = await failedRun("listens-and-hangs.ts");
    expect(error).toContain("rollouts/faulty/listens-and-hangs.ts gave no answer for 4 s");
    expect(error).toContain("event loop");
    await expectFirstRowsKept(name);
  });
});

async function expectFirstRowsKept(name: string): Promise<void> {
  const kept = (await recordedRollouts(platform.client, "eval", name)).filter(
    ({ outcome }) => outcome === "ok",
  );
  expect(new Set(kept.map(({ row_index: row }) => row))).toEqual(new Set([0, 1, 2]));
}

describe("a workflow or grader", () => {
  test("that goes wrong costs its own row only, and says where and what to do", async () => {
    const ended = await submit(await configure("rows-go-wrong.ts"));
    expect(ended).toMatchObject({ code: 0 });
    // The command's own envelope.
    const { resource } = JSON.parse(ended.stdout.trim().split("\n").at(-1) ?? "") as {
      resource: { name: string };
    };
    const { results } = await evalEnd(platform.client, resource.name);
    const faults = Object.keys(FAULTY_ROWS).length;
    expect(results).toMatchObject({
      total_runs: ROWS,
      graded: ROWS - faults,
      outcomes: { timeout: 1, agent: 4, grader: 3, ok: ROWS - faults },
    });
    const rollouts = await recordedRollouts(platform.client, "eval", resource.name);
    const at = (fault: keyof typeof FAULTY_ROWS) => {
      const rollout = rollouts.find(({ row_index: row }) => row === FAULTY_ROWS[fault]);
      return rollout && { outcome: rollout.outcome, reward: rollout.reward, error: rollout.error };
    };
    expect(at("times_out")).toEqual(ends("timeout", "workflow exceeded its 3s deadline", "ctx.signal"));
    expect(at("returns_nothing")).toEqual(ends("agent", "Workflow.run returned nothing", "osmosisModel()"));
    expect(at("returns_two_samples")).toEqual(ends("agent", "Workflow.run returned 2 samples", "one list"));
    expect(at("makes_two_models")).toEqual(ends("agent", "two samples", "One execution is one sample"));
    expect(at("throws")).toEqual(ends("agent", "Workflow.run", "TypeError: no such toy"));
    expect(at("grader_throws")).toEqual(ends("grader", "Grader.grade", "cannot read the label"));
    expect(at("grader_gives_nan")).toEqual(ends("grader", "Grader set the reward to NaN", "finite number"));
    expect(at("grader_forgets")).toEqual(ends("grader", "Grader.grade set no reward", "ctx.setReward"));
  });

  test("that goes wrong in every row fails the run, with the commonest reason", async () => {
    const { name, error } = await failedRun("all-rows-fail.ts");
    expect(error).toContain(`None of the ${ROWS} rollouts has a reward`);
    expect(error).toContain("no luck today");
    expect(await recordedRollouts(platform.client, "eval", name)).toHaveLength(ROWS);
  });
});

/** A rollout without a reward, whose message holds the words in that order. */
function ends(outcome: string, ...words: string[]) {
  const pattern = words.map((word) => word.replace(/[.()]/g, "\\$&")).join(".*");
  return { outcome, reward: null, error: expect.stringMatching(pattern) };
}

describe("a submission", () => {
  test("of code that was not pushed is refused, and says what to push", async () => {
    const path = join(platform.workspace, "rollouts", FAULTY, "not-pushed.ts");
    await writeFile(path, "");
    const ended = await submit(await configure("not-pushed.ts"));
    await rm(path);
    expect(ended).toMatchObject({ code: 1, stdout: "" });
    expect(failureOf(ended)).toMatchObject({
      code: "CONFLICT",
      message: expect.stringContaining("rollouts/faulty/not-pushed.ts is not in the commit"),
      hint: expect.stringContaining("git push"),
    });
  });

  test("of a changed file says that the change is not part of the run", async () => {
    const path = join(platform.workspace, "rollouts", FAULTY, "throws.ts");
    await appendFile(path, "// changed\n");
    const file = await configure("throws.ts");
    const ended = await platform.osmosis("eval", "submit", file, "--dry-run", "--json");
    await platform.git("checkout", "--", `rollouts/${FAULTY}`);
    expect(ended.code).toBe(0);
    expect(ended.stderr + ended.stdout).toContain("rollouts/faulty differs here from what the run will use");
  });

  test("without a secret that it requires is refused, and says how to set it", async () => {
    const ended = await submit(await configure("throws.ts", ['required = ["TOY_BOX_KEY"]']));
    expect(ended).toMatchObject({ code: 1, stdout: "" });
    expect(failureOf(ended).message).toContain("TOY_BOX_KEY");
    expect(failureOf(ended).hint).toContain("osmosis secret set");
  });
});

describe("a token", () => {
  test("of somewhere else is refused by the API and by Git, and says what to do", async () => {
    const foreign = (await readFile(join(platform.data, "worker-secret"), "utf8")).trim();
    const env = { ...platform.env, OSMOSIS_TOKEN: foreign, OSMOSIS_TOKEN_PLATFORM_URL: platform.url };
    const inClone = { cwd: platform.workspace, env };
    const ended = await startOsmosis(["dataset", "list", "--json"], inClone).ended;
    expect(ended).toMatchObject({ code: 1, stdout: "" });
    expect(failureOf(ended)).toMatchObject({
      code: "AUTH_REQUIRED",
      hint: expect.stringContaining("OSMOSIS_TOKEN was refused"),
    });
    const remote = (await platform.git("remote", "get-url", "origin")).trim();
    const withToken = remote.replace("://", `://osmosis:${encodeURIComponent(foreign)}@`);
    await expect(
      runProgram("git", ["-c", "credential.helper=", "ls-remote", withToken], inClone),
    ).rejects.toThrow(/[Aa]uthentication failed|401|403/);
  });

  test("that was revoked is refused, and the login stays until somebody signs in again", async () => {
    const env = { ...platform.env, XDG_CONFIG_HOME: join(platform.data, "../another-person") };
    const inClone = { cwd: platform.workspace, env };
    const login = ["auth", "login", "--local", "--data", platform.data];
    expect(await startOsmosis(login, inClone).ended).toMatchObject({ code: 0 });
    const kept = join(env.XDG_CONFIG_HOME, "osmosis/credentials.json");
    const before = await readFile(kept, "utf8");
    expect(await startOsmosis(["auth", "logout", "--yes"], inClone).ended).toMatchObject({ code: 0 });
    await writeFile(kept, before);
    const ended = await startOsmosis(["eval", "list", "--json"], inClone).ended;
    expect(ended).toMatchObject({ code: 1, stdout: "" });
    expect(failureOf(ended)).toMatchObject({
      code: "AUTH_REQUIRED",
      hint: expect.stringContaining("osmosis auth login"),
    });
    expect(await readFile(kept, "utf8")).toBe(before);
  });
});

const up = (...args: string[]) =>
  startOsmosis(["up", "--json", ...args], { cwd: platform.workspace, env: platform.env }).ended;

describe("a model that went wrong after it was registered", () => {
  /** Registers a model like the shipped one, with weights that no worker has. */
  async function register(name: string, mark: number): Promise<string> {
    const folder = join(platform.data, "..", `model-${mark}`);
    await cp(join(CHECKOUT, "packages/engine/models/tiny-agent"), folder, { recursive: true });
    const file = join(folder, "model.safetensors");
    const weights = await readFile(file);
    weights.writeUInt8(mark, weights.length - 1);
    await writeFile(file, weights);
    await platform.answerOf("model", "import", folder, "--name", name);
    const sha256 = createHash("sha256").update(weights).digest("hex");
    return join(platform.data, "blobs/blobs/models~/files~", sha256);
  }

  const evaluate = async (model: string) => {
    const config = "configs/eval/multiply-local-openai.toml";
    const ended = await platform.osmosis(
      "eval",
      "submit",
      config,
      "--model",
      model,
      "--yes",
      "--wait",
      "--json",
    );
    expect(ended.code).toBe(1);
    const failure = failureOf(ended);
    expect(failure.code).toBe("RUN_FAILED");
    // The run of the details is the platform's answer.
    const { name } = failure.details["run"] as { name: string };
    const { eval_run: run } = await evalEnd(platform.client, name);
    expect(run).toMatchObject({ status: "failed" });
    return run.error;
  };

  test("because its weights were deleted fails the run with their name and the remedy, which works", async () => {
    const blob = await register("local/deleted", 1);
    await rm(blob);
    expect(await evaluate("local/deleted")).toMatch(
      /cannot give model\.safetensors: .* answered 404.*import the model again with --overwrite/,
    );
    const folder = join(platform.data, "../model-1");
    await platform.answerOf("model", "import", folder, "--name", "local/deleted", "--overwrite");
    expect((await readFile(blob)).length).toBeGreaterThan(1_000_000);
  });

  test("because its weights were damaged fails the run before anything is sampled with them", async () => {
    const blob = await register("local/damaged", 2);
    const bytes = await readFile(blob);
    bytes.writeUInt8(3, bytes.length - 1);
    await writeFile(blob, bytes);
    expect(await evaluate("local/damaged")).toContain("model.safetensors arrived damaged");
  });
});

describe("osmosis up", () => {
  test("on a taken port names it and another", async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
    const address = other.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const data = join(platform.data, "../elsewhere");
    const ended = await up("--data", data, "--port", String(port));
    await new Promise((resolve) => other.close(resolve));
    expect(ended).toMatchObject({ code: 1, stdout: "" });
    expect(failureOf(ended)).toMatchObject({
      code: "CONFLICT",
      message: expect.stringContaining(String(port)),
      hint: expect.stringContaining(`--port ${port + 1}`),
    });
    expect(await processesOf(data)).toEqual([]);
  });

  test("on a data folder that is in use names its holder, and leaves it alone", async () => {
    const ended = await up("--data", platform.data, "--port", "0");
    expect(ended).toMatchObject({ code: 1, stdout: "" });
    const server = await platform.processOf("server");
    expect(failureOf(ended)).toMatchObject({
      code: "CONFLICT",
      message: expect.stringContaining(`in use by process ${server?.pid}`),
      hint: expect.stringContaining("--data"),
    });
    expect((await platform.osmosis("auth", "whoami")).code).toBe(0);
  });

  test("on a file in place of a data folder says so", async () => {
    const file = join(platform.data, "../a-file");
    await mkdir(join(platform.data, ".."), { recursive: true });
    await writeFile(file, "");
    const ended = await up("--data", file, "--port", "0");
    expect(ended).toMatchObject({ code: 1, stdout: "" });
    expect(failureOf(ended)).toMatchObject({ code: "STORAGE", message: expect.stringContaining(file) });
  });
});
