import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { authRoutes, createClient } from "@osmosis/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { startProgram, type Ended, type RunningCommand } from "./support/command.ts";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";
import { evalEnd, logOf, recordedRollouts, trainingEnd } from "./support/runs.ts";
import { until } from "./support/until.ts";

/**
 * The official command line and SDK, as they are published, against this platform: both are the package `osmosis-ai`
 * with its extra `server`. The rollout of these tests is Python.
 */

const PYTHON = process.env["OSMOSIS_TEST_OSMOSIS_PYTHON"] ?? "";
const OFFICIAL = join(dirname(PYTHON), "osmosis");
const hasPython = existsSync(PYTHON) && existsSync(OFFICIAL);
if (!hasPython) {
  process.stderr.write(
    "The official command line and SDK are not tested: set OSMOSIS_TEST_OSMOSIS_PYTHON to a Python that has osmosis-ai[server].\n",
  );
}

const hasAgents = hasPython && spawnSync(PYTHON, ["-c", "import agents, litellm"]).status === 0;
if (hasPython && !hasAgents) {
  process.stderr.write(
    "Its OpenAI Agents integration is not tested: that Python has no osmosis-ai[openai-agents].\n",
  );
}

describe.skipIf(!hasPython)("the official Python package", () => {
  let platform: TestPlatform;
  let env: Record<string, string>;

  beforeAll(async () => {
    // The worker runs the rollout with this Python, so that nothing is downloaded.
    platform = await startTestPlatform({ env: { OSMOSIS_ROLLOUT_PYTHON: PYTHON } });
    const { workspace, git, url } = platform;
    // Its home is the folder that holds the clone; it keeps logins there, and finds no keyring.
    env = {
      ...platform.env,
      LITELLM_LOCAL_MODEL_COST_MAP: "True",
      HOME: dirname(workspace),
      OSMOSIS_PLATFORM_URL: url,
      OSMOSIS_TOKEN_STORE: "file",
      NO_COLOR: "1",
    };
    await cp(join(import.meta.dirname, "support/python-rollout"), join(workspace, "rollouts/toy"), {
      recursive: true,
    });
    await writeFile(join(workspace, "configs/eval/toy.toml"), EVALUATION);
    await writeFile(join(workspace, "configs/training/toy.toml"), TRAINING);
    await platform.push("A rollout in Python");
    // It accepts only workspaces that seem to be at GitHub: `origin` says so, and what is pushed goes to the platform.
    const own = (await git("remote", "get-url", "origin")).trim();
    await git("remote", "set-url", "--push", "origin", own);
    await git("remote", "set-url", "origin", `https://github.com${new URL(own).pathname}`);
  }, 300_000);
  afterAll(() => platform?.[Symbol.asyncDispose]());

  const start = (...args: string[]): RunningCommand =>
    startProgram(OFFICIAL, args, { cwd: platform.workspace, env });
  const run = (...args: string[]): Promise<Ended> => start(...args).ended;

  /** Its JSON answer, once it succeeds. */
  async function answer(...args: string[]): Promise<Record<string, unknown>> {
    const { code, stdout, stderr } = await run("--json", ...args);
    if (code !== 0) throw new Error(`osmosis ${args.join(" ")} ended with ${code}: ${stdout}${stderr}`);
    return z.record(z.string(), z.unknown()).parse(JSON.parse(stdout));
  }

  /** What it says, once it is refused. */
  async function refusal(...args: string[]): Promise<unknown> {
    const { code, stderr } = await run("--json", ...args);
    expect(code, args.join(" ")).toBe(1);
    const line = stderr.trim().split("\n").at(-1) ?? "";
    return z.object({ error: z.unknown() }).parse(JSON.parse(line)).error;
  }

  const named = z.object({ resource: z.object({ name: z.string(), status: z.string() }) });
  const submit = async (kind: "eval" | "train", file: string): Promise<string> =>
    named.parse(await answer(kind, "submit", file, "--yes")).resource.name;

  test("signs in by code and by token, says who and where it is, and signs out", async () => {
    const login = start("auth", "login");
    const code = await until("it shows a code", () => /user_code=([\w-]+)/.exec(login.stdout())?.[1]);
    await platform.client.call(authRoutes.approveDevice, {
      params: { user_code: code },
      body: { approve: true },
    });
    expect(await login.ended).toMatchObject({ code: 0 });
    expect(await answer("auth", "whoami")).toMatchObject({
      data: { email: "owner@osmosis.local", workspace: { name: "demo", role: "owner" } },
    });
    expect(await answer("doctor")).toMatchObject({ resource: { valid: true } });
    expect(await answer("auth", "logout", "--yes")).toMatchObject({ resource: { revoked: true } });
    expect(await refusal("dataset", "list")).toMatchObject({ code: "AUTH_REQUIRED" });

    const token = await ownersToken(platform);
    expect(await answer("auth", "login", "--token", token)).toMatchObject({ resource: { verified: true } });
    expect(await answer("auth", "whoami")).toMatchObject({ data: { workspace: { name: "demo" } } });
    const bound = { ...env, OSMOSIS_TOKEN: token, OSMOSIS_TOKEN_PLATFORM_URL: platform.url };
    const elsewhere = { cwd: dirname(platform.workspace), env: bound };
    const byName = await startProgram(
      OFFICIAL,
      ["--json", "--workspace", "demo", "model", "list", "--type", "base"],
      elsewhere,
    ).ended;
    expect(byName).toMatchObject({ code: 0, stdout: expect.stringContaining("osmosis/tiny-agent") });
    expect(await refusal("--workspace", "other", "model", "list")).toMatchObject({
      code: "NOT_FOUND",
      details: { code: "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED" },
    });
  });

  test("brings a data set, sees, replaces and fetches it", async () => {
    const file = "data/multiply.jsonl";
    expect(await answer("dataset", "validate", file)).toMatchObject({ data: { valid: true } });
    expect(await answer("dataset", "upload", file, "--yes")).toMatchObject({ status: "success" });
    const uploaded = async () =>
      z.object({ data: z.object({ status: z.string() }) }).parse(await answer("dataset", "info", "multiply"));
    await until("it is read", async () => (await uploaded()).data.status === "uploaded");
    expect(await answer("dataset", "list")).toMatchObject({
      total_count: 1,
      items: [{ file_name: "multiply", row_count: 1000 }],
    });
    expect(await answer("dataset", "preview", "multiply", "--rows", "2")).toMatchObject({
      data: { returned_rows: 2, rows: [{ ground_truth: "-682.08" }, {}] },
    });
    expect(await answer("dataset", "logs", "multiply")).toMatchObject({ items: [{ level: "info" }] });
    expect(await refusal("dataset", "upload", file, "--yes")).toMatchObject({ code: "CONFLICT" });
    expect(await answer("dataset", "upload", file, "--overwrite", "--yes")).toMatchObject({
      status: "success",
    });
    await until("it is read again", async () => (await uploaded()).data.status === "uploaded");
    const copy = join(dirname(platform.workspace), "copy.jsonl");
    await answer("dataset", "download", "multiply", "-o", copy);
    expect(await readFile(copy, "utf8")).toBe(await readFile(join(platform.workspace, file), "utf8"));
    expect(await refusal("dataset", "info", "other")).toMatchObject({ code: "NOT_FOUND" });
  });

  test("keeps secrets of a person and of the workspace, and lists rollouts and models", async () => {
    env["TOY_KEY"] = "not-shown";
    for (const scope of ["personal", "workspace"]) {
      expect(await answer("secret", "set", "TOY_KEY", "--env", "TOY_KEY", "--scope", scope)).toMatchObject({
        resource: { scope },
      });
    }
    const listed = await answer("secret", "list");
    expect(listed).toMatchObject({ total_count: 2 });
    expect(JSON.stringify(listed)).not.toContain("not-shown");
    await answer("secret", "delete", "TOY_KEY", "--yes");
    expect(await answer("secret", "list")).toMatchObject({ items: [{ scope: "workspace" }] });

    const rollout = { last_synced_at: expect.any(String), last_synced_commit_sha: expect.any(String) };
    const { items } = z.object({ items: z.array(z.unknown()) }).parse(await answer("rollout", "list"));
    expect(items).toContainEqual(expect.objectContaining({ name: "toy", ...rollout }));
    expect(await answer("model", "info", "osmosis/tiny-agent")).toMatchObject({
      data: { base_model: { namespace: "osmosis", context_window: 512 } },
    });
    expect(await answer("rollout", "init", "fresh")).toMatchObject({ resource: { name: "fresh" } });
  });

  test("measures and trains with a rollout server of its SDK, and shows both", async () => {
    const evaluation = await submit("eval", "configs/eval/toy.toml");
    const { eval_run: measured } = await evalEnd(platform.client, evaluation);
    expect(measured).toMatchObject({ status: "finished", results: { graded: 24, outcomes: { ok: 24 } } });
    expect(await answer("eval", "info", evaluation)).toMatchObject({
      data: {
        metrics_available: true,
        summary: {
          graded: 24,
          progress: { completed: 24, total: 24 },
          pass_rate: measured.results?.pass_rate,
        },
      },
    });
    expect(await answer("eval", "list")).toMatchObject({
      items: [{ name: evaluation, model: "osmosis/tiny-agent" }],
    });
    expect(await answer("eval", "logs", evaluation, "--limit", "200")).toMatchObject({
      items: expect.arrayContaining([expect.objectContaining({ step: "rollout", level: "info" })]),
    });

    expect(
      await answer("eval", "download", evaluation, "--type", "all", "--rows", "0-3", "--yes"),
    ).toMatchObject({
      status: "success",
      resource: { files_downloaded: 7, files_failed: [] },
    });
    const folder = join(platform.workspace, ".osmosis/evals", evaluation);
    const trajectory = await readFile(join(folder, "trajectories/row_0_run_0.json"), "utf8");
    expect(JSON.parse(trajectory)).toMatchObject({ extra: { osmosis: { label: "-682.08" } } });
    expect(JSON.parse(await readFile(join(folder, "metrics.json"), "utf8"))).toMatchObject({
      eval_run: { name: evaluation },
      summary: { graded: 24, pass_rate: measured.results?.pass_rate },
    });

    const training = await submit("train", "configs/training/toy.toml");
    const { training_run: trained } = await trainingEnd(platform.client, training, { timeoutMs: 400_000 });
    expect(trained).toMatchObject({ status: "finished", current_step: 3, error: null });
    const rollouts = await recordedRollouts(platform.client, "train", training);
    expect(rollouts.map(({ outcome }) => outcome)).toEqual(Array(48).fill("ok"));
    // The agent calls its tool: some conversations have a second model call.
    expect(Math.max(...rollouts.map((rollout) => rollout.model_calls))).toBeGreaterThan(1);
    const checkpoint = `${training}-step-3`;
    expect(await answer("train", "info", training)).toMatchObject({
      data: {
        summary: { progress: { completed: 3, total: 3, unit: "steps" } },
        metrics_available: true,
        checkpoints: [{ checkpoint_name: checkpoint }],
      },
    });
    expect(await answer("train", "list")).toMatchObject({
      items: [
        { name: training, model_name: "osmosis/tiny-agent", dataset_name: "multiply", rollout_name: "toy" },
      ],
    });
    expect(await answer("train", "logs", training)).toMatchObject({
      items: expect.arrayContaining([expect.objectContaining({ step: "step 3" })]),
    });
    expect(await answer("model", "list", "--type", "lora")).toMatchObject({
      items: [{ model_name: checkpoint }],
    });
    expect(await answer("model", "info", checkpoint)).toMatchObject({
      data: { lora_model: { checkpoint_step: 3, training_run_name: training } },
    });
    const warnings = (await logOf(platform.client, "train", training)).filter(
      ({ level }) => level === "warning",
    );
    expect(warnings).toEqual([]);
  });

  test.skipIf(!hasAgents)("measures an agent on its OpenAI Agents integration, which streams", async () => {
    const other = EVALUATION.replace("main.py", "with_openai_agents.py").replace("24", "8");
    // LiteLLM would look for prices in the internet first.
    const env = '[env]\nLITELLM_LOCAL_MODEL_COST_MAP = "True"\n';
    await writeFile(join(platform.workspace, "configs/eval/agents.toml"), `${other}\n${env}`);
    const evaluation = await submit("eval", "configs/eval/agents.toml");
    const { eval_run: measured } = await evalEnd(platform.client, evaluation);
    expect(measured).toMatchObject({ status: "finished", results: { graded: 8, outcomes: { ok: 8 } } });
    const rollouts = await recordedRollouts(platform.client, "eval", evaluation);
    expect(Math.max(...rollouts.map((rollout) => rollout.model_calls))).toBeGreaterThan(1);
    expect(measured.results?.passed).toBeGreaterThan(0);
  });

  test("stops what runs, and is told what is wrong with a submission", async () => {
    const long = TRAINING.replace("max_steps = 3", "max_steps = 200");
    await writeFile(join(platform.workspace, "configs/training/long.toml"), long);
    const training = await submit("train", "configs/training/long.toml");
    expect(await answer("train", "stop", training, "--yes")).toMatchObject({ status: "success" });
    expect((await trainingEnd(platform.client, training)).training_run.status).toBe("stopped");

    const secret = EVALUATION.replace("required = []", 'required = ["NO_SUCH_KEY"]');
    await writeFile(join(platform.workspace, "configs/eval/wrong.toml"), secret);
    expect(await refusal("eval", "submit", "configs/eval/wrong.toml", "--yes")).toMatchObject({
      message: expect.stringContaining("NO_SUCH_KEY"),
    });
    const unknown = EVALUATION.replace("osmosis/tiny-agent", "osmosis/tiny-agnet");
    await writeFile(join(platform.workspace, "configs/eval/wrong.toml"), unknown);
    expect(await refusal("eval", "submit", "configs/eval/wrong.toml", "--yes")).toMatchObject({
      code: "VALIDATION",
      message: expect.stringContaining("osmosis/tiny-agent"),
    });
    expect(await refusal("benchmark", "list")).toMatchObject({
      message: expect.stringContaining("no benchmarks"),
    });
    expect(await refusal("model", "deploy", "some")).toMatchObject({
      message: expect.stringContaining("deploys none"),
    });
  });
});

const EXPERIMENT = `[experiment]
rollout = "toy"
entrypoint = "main.py"
model_path = "osmosis/tiny-agent"
dataset = "multiply"
`;

const EVALUATION = `${EXPERIMENT}
[evaluation]
limit = 24

[secrets]
required = []
`;

const TRAINING = `${EXPERIMENT}
[training]
lr = 2e-3
n_samples_per_prompt = 4
rollout_batch_size = 4
max_prompt_length = 256
max_response_length = 64

[checkpoints]
eval_interval = 0

[advanced]
lora_rank = 8
seed = 7
max_steps = 3
holdout_rows = 200
dynamic_sampling = false
`;

async function ownersToken({ data, url }: TestPlatform): Promise<string> {
  const secret = (await readFile(join(data, "local-secret"), "utf8")).trim();
  const { token } = await createClient({ baseUrl: url, fetch }).call(authRoutes.localToken, {
    body: { secret, name: "official" },
  });
  return token;
}
