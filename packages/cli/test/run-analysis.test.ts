import { once } from "node:events";
import { lstat, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestWorker, testRollout } from "../../server/src/testing-worker.ts";
import { errorOf, lastJson } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";

let platform: TestPlatform;
let workspace: string;
const EVAL = "configs/eval/multiply-local-openai.toml";
const TRAIN = "configs/training/multiply-local-openai.toml";

beforeAll(async () => {
  platform = await startPlatform();
  workspace = join(platform.folder, "workspace");
  const created = await platform.run(["workspace", "create", "demo", "--clone", workspace, "--json"]);
  if (created.code !== 0) throw new Error(created.stderr);
  await run("dataset", "upload", "data/multiply.jsonl", "--json");
}, 120_000);

afterAll(async () => {
  await platform?.[Symbol.asyncDispose]();
});

const run = (...argv: string[]) => platform.run(argv, { cwd: workspace });

/** The run in the hands of a worker. */
async function heldRun(name: string) {
  const secret = await readFile(join(platform.folder, "data/worker-secret"), "utf8");
  const worker = createTestWorker({ url: platform.url, workerSecret: secret.trim() });
  const job = await worker.claim(20_000);
  if (job?.run_name !== name) throw new Error("the worker got another run, or none");
  return { job, held: worker.run(job) };
}

/** Submits the example's evaluation, and answers each row as often as rewards are given for it. */
async function evaluated(rewards: readonly (readonly number[])[]): Promise<string> {
  const submitted = await run("eval", "submit", EVAL, "--yes", "--json");
  const { resource } = lastJson(submitted.stdout) as { resource: { name: string } };
  const { held } = await heldRun(resource.name);
  await held.record(
    ...rewards.flatMap((ofRow, row_index) =>
      ofRow.map((reward, sample_index) => testRollout({ row_index, sample_index, reward })),
    ),
  );
  await held.finish();
  return resource.name;
}

/** Submits the example's training, and does what a worker would do with it. */
async function trained(
  rewards: readonly number[],
  validation: readonly number[],
  /** What a step commits beside its reward. */
  more: (step: number) => Record<string, number> = () => ({}),
): Promise<string> {
  const submitted = await run("train", "submit", TRAIN, "--yes", "--json");
  const { resource } = lastJson(submitted.stdout) as { resource: { name: string } };
  const { job, held } = await heldRun(resource.name);
  for (const [index, reward] of rewards.entries()) {
    const step = index + 1;
    const row = 200 + step;
    const rollout_id = `${job.run_id}-train-s${step}-r${row}-n0`;
    await held.record(
      testRollout({ rollout_id, phase: "train", step, row_index: row, reward, error: "=1+1" }),
    );
    await held.commit(step, {
      examples: 1,
      metrics: { "rollout/raw_reward": reward, "rollout/group/all_bad": 0.8, ...more(step) },
    });
  }
  await held.record(
    ...validation.map((reward, row_index) =>
      testRollout({ phase: "validation", step: rewards.length, row_index, reward }),
    ),
  );
  await held.finish();
  return resource.name;
}

test("doctor tells findings with numbers and remedy, and info lists them", async () => {
  const name = await trained([0.1, 0.2, 0.3], []);
  const ran = await run("train", "doctor", name, "--json");
  expect(ran).toMatchObject({ code: 0, stderr: "" });
  expect(lastJson(ran.stdout)).toMatchObject({
    data: {
      name,
      latest_step: 3,
      findings: [
        {
          severity: "advice",
          rule: "too_hard",
          values: { mean: expect.closeTo(0.8), limit: 0.5 },
          steps: { first: 1, last: 3 },
        },
      ],
    },
  });
  const text = await run("train", "doctor", name);
  expect(text.stdout).toContain("no alarm, 1 piece of advice");
  expect(text.stdout).toMatch(/80\.0 % of the groups pass with no rollout, on average over 3 steps/);
  const info = await run("train", "info", name);
  expect(info.stdout).toMatch(/too_hard\s+Most rows are too hard/);
  expect(errorOf(await run("train", "doctor", "nobody", "--json")).code).toBe("NOT_FOUND");
});

test("a run is judged by its newest validation, and its last batch is called what it is", async () => {
  const batch = { "rollout/pass_rate": 0.992, "rollout/n": 128, "rollout/temperature": 1 };
  const held = {
    "eval/validation/reward": 0.76,
    "eval/validation/pass_rate": 0.76,
    "eval/validation/n": 200,
    "eval/validation/temperature": 0,
  };
  // The step after the validation is none.
  const name = await trained([0.7, 0.5, 0.992], [], (step) => ({ ...batch, ...(step === 2 ? held : {}) }));
  const info = (await run("train", "info", name)).stdout;
  expect(info).toContain("pass rate 0.760 (n = 200, 95 % 0.696–0.814, greedy), reward 0.760, after step 2");
  expect(info).toMatch(
    /Last step:? +pass rate 0\.992 \(n = 128, \d+ prompts × \d+, temperature 1\), reward 0\.992, training rows/,
  );
  const json = lastJson((await run("train", "info", name, "--json")).stdout);
  const validation = {
    step: 2,
    reward: 0.76,
    pass_rate: { value: 0.76, ci_low: expect.closeTo(0.696, 3), ci_high: expect.closeTo(0.814, 3), n: 200 },
    temperature: 0,
  };
  const last_step = { step: 3, reward: 0.992, pass_rate: 0.992, n: 128, temperature: 1 };
  expect(json).toMatchObject({
    data: {
      // By the names of old, the last step.
      training_run: { reward: 0.992, pass_rate: 0.992, validation, last_step },
      summary: { validation, last_step },
    },
  });
  const before = await trained([0.5], [], () => batch);
  const { items } = lastJson((await run("train", "list", "--json")).stdout) as { items: object[] };
  expect(items).toMatchObject([
    { name: before, validation: null, last_step: { step: 1, reward: 0.5 } },
    { name, validation, last_step },
    {},
  ]);
  const [headers, ...lines] = (await run("train", "list")).stdout
    .split("\n")
    .map((line) => line.trim().split(/ {2,}/));
  expect(headers?.slice(-6)).toEqual([
    "STEP",
    "VALIDATION REWARD",
    "VALIDATION PASS RATE",
    "N",
    "LAST STEP REWARD",
    "CREATED",
  ]);
  expect(lines.slice(0, 2).map((line) => line.slice(-6, -1))).toEqual([
    [expect.stringMatching(/^1\/\d+$/), "–", "–", "–", "0.500"],
    [expect.stringMatching(/^3\/\d+$/), "0.760", "0.760", "200", "0.992"],
  ]);
  expect((await run("train", "info", before)).stdout).toMatch(/Validation:? +none/);
});

test("compare lines two runs up, and pairs their held-out rows", async () => {
  const a = await trained([0.1, 0.2], [1, 0, 0, 0]);
  const b = await trained([0.2, 0.4, 0.6], [1, 1, 1, 0]);
  const ran = await run("train", "compare", a, b, "--json");
  expect(lastJson(ran.stdout)).toMatchObject({
    data: {
      runs: [
        { name: a, current_step: 2 },
        { name: b, current_step: 3 },
      ],
      differences: [],
      paired: [{ a, b, rows: 4, only_a_passes: 0, only_b_passes: 2, reward: { value: 0.5 } }],
    },
  });
  const text = (await run("train", "compare", a, b)).stdout;
  expect(text).toContain(`${b} (step 3) against ${a} (step 2), the same 4 rows: pass rate +0.500`);
  expect(text).toMatch(new RegExp(`rollout/raw_reward\\s+${b}\\s+3\\s+0\\.200\\s+0\\.600`));
  // Half a point more in every row: of the next row that tells nothing.
  const c = await trained([0.2], [0.5, 0.5, 0.5, 0.5]);
  const d = await trained([0.2], [1, 1, 1, 1]);
  expect((await run("train", "compare", c, d)).stdout).toMatch(
    /pass rate \+1\.000 \(95 % interval \S+ to \+1\.000\), reward without an interval/,
  );
  expect((await run("train", "compare", a, "--json")).code).toBe(2);
  expect(errorOf(await run("train", "compare", a, a, "--json")).code).toBe("VALIDATION");
});

test("two evaluations are paired on the rows that both have, with what was won and lost", async () => {
  const a = await evaluated([[0], [0], [0], [0], [1], [1]]);
  const b = await evaluated([[1], [1], [1], [0], [0]]);
  const ran = await run("eval", "compare", a, b, "--json");
  expect(lastJson(ran.stdout)).toMatchObject({
    data: {
      a: { name: a, status: "finished", pass_rate: { value: expect.closeTo(2 / 6), n: 6 } },
      b: { name: b, pass_rate: { value: 0.6, n: 5, ci_low: expect.closeTo(0.231, 3) } },
      differences: [],
      paired: {
        rows: 5,
        pass_rate: { value: 0.4, n: 5 },
        won_rows: [0, 1, 2],
        lost_rows: [4],
        sign_test_p: 0.625,
        rows_only_in_a: 1,
        rows_only_in_b: 0,
      },
      notes: [`The difference is of the 5 rows that both have an answer for; ${a} has 1 more, ${b} 0 more.`],
    },
  });
  const text = (await run("eval", "compare", a, b)).stdout;
  expect(text).toMatch(/pass rate 0\.600 \(95 % 0\.231–0\.882, n=5\)/);
  expect(text).toMatch(
    new RegExp(`${b} against ${a}, 5 rows: pass rate \\+0\\.400 \\(95 % interval −\\d\\.\\d+ to \\+`),
  );
  expect(text).toContain(`${b} wins 3, loses 1, 1 are the same, sign test p = 0.63`);
  expect(text).toContain(`osmosis eval rollouts ${b} eval-s0-r4-n0`);
  expect(errorOf(await run("eval", "compare", a, a, "--json")).code).toBe("VALIDATION");
});

test("evaluations of different versions of a data set are not paired, and settings that differ are told", async () => {
  const a = await evaluated([[0], [1]]);
  const data = join(workspace, "data/multiply.jsonl");
  const [, ...rows] = (await readFile(data, "utf8")).split("\n");
  await writeFile(data, rows.join("\n"));
  expect((await run("dataset", "upload", data, "--overwrite", "--yes", "--json")).code).toBe(0);
  const config = join(workspace, EVAL);
  const before = await readFile(config, "utf8");
  await writeFile(config, before.replace("max_tokens = 64", "max_tokens = 32"));
  const b = await evaluated([[1], [1]]);
  await writeFile(config, before);
  const compared = (await run("eval", "compare", a, b)).stdout;
  expect(compared).toContain(
    `${a} and ${b} measured different versions of multiply, so their rows cannot be paired.`,
  );
  expect(compared).not.toContain("Same rows");
  expect(compared).toMatch(/max_tokens +64 +32/);
  expect(compared).toMatch(/dataset_version/);
});

test("a command that is given a run of the other kind names the command for it", async () => {
  const evaluation = await evaluated([[1]]);
  const training = await trained([0.5], []);
  const wrong = errorOf(await run("train", "compare", training, evaluation, "--json"));
  expect(wrong).toMatchObject({
    code: "NOT_FOUND",
    hint: `${evaluation} is an evaluation run: \`osmosis eval compare\` compares two of them.`,
  });
  expect(errorOf(await run("eval", "compare", training, evaluation, "--json"))).toMatchObject({
    hint: `${training} is a training run: \`osmosis train compare\` compares two of them.`,
  });
  expect(errorOf(await run("train", "info", evaluation, "--json"))).toMatchObject({
    hint: `${evaluation} is an evaluation run: see \`osmosis eval info ${evaluation}\`.`,
  });
});

test("export writes whole files or none, and replaces none unasked", async () => {
  const name = await trained([0, 1], [1]);
  const ran = await run("train", "export", name, "--json");
  expect(ran).toMatchObject({ code: 0 });
  expect(lastJson(ran.stdout)).toMatchObject({
    operation: "train.export",
    resource: {
      name,
      what: "metrics",
      format: "jsonl",
      rows: 2,
      output_path: join(workspace, `${name}-metrics.jsonl`),
    },
  });
  const lines = (await readFile(join(workspace, `${name}-metrics.jsonl`), "utf8")).trimEnd().split("\n");
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { step: 1, metrics: { "rollout/raw_reward": 0 } },
    { step: 2, metrics: { "rollout/raw_reward": 1 } },
  ]);
  expect(errorOf(await run("train", "export", name, "--json")).code).toBe("CONFLICT");
  expect((await run("train", "export", name, "--overwrite", "--json")).code).toBe(0);

  // The finished file is renamed: it would take the place of a device, which root may do.
  const socket = join(workspace, "socket");
  const listening = createServer().listen(socket);
  await once(listening, "listening");
  const special = await run("train", "export", name, "--overwrite", "-o", "socket", "--json");
  expect(errorOf(special)).toMatchObject({
    code: "VALIDATION",
    message: `${socket} is not a file, and would be replaced by one.`,
  });
  expect((await lstat(socket)).isSocket()).toBe(true);
  listening.close();

  await mkdir(join(workspace, "out"));
  const table = await run("train", "export", name, "--what", "rollouts", "--format", "csv", "-o", "out");
  expect(table.code).toBe(0);
  const csv = await readFile(join(workspace, `out/${name}-rollouts.csv`), "utf8");
  expect(csv.trimEnd().split("\n")).toHaveLength(4);
  expect(csv).toContain(",'=1+1,");
  expect(table.stderr).toContain("Exporting rollouts 3/3");

  expect(errorOf(await run("train", "export", "nobody", "-o", "out/x.jsonl", "--json")).code).toBe(
    "NOT_FOUND",
  );
  expect(await readdir(join(workspace, "out"))).toEqual([`${name}-rollouts.csv`]);
});

test("a rollout is listed by the part of its id that is its own, and read by it or by all of it", async () => {
  const name = await trained([0.5], []);
  const list = await run("train", "rollouts", name);
  expect(list.stdout).toMatch(/train\s+201\s+ok\s+0\.500\s+train-s1-r201-n0\s/);
  const { items } = lastJson((await run("train", "rollouts", name, "--json")).stdout) as {
    items: { id: string }[];
  };
  for (const id of ["train-s1-r201-n0", items[0]?.id ?? ""]) {
    const read = await run("train", "rollouts", name, id, "--json");
    expect(lastJson(read.stdout)).toMatchObject({ data: { rollout: { id: items[0]?.id, row_index: 201 } } });
  }
  expect(errorOf(await run("train", "rollouts", name, "r201-n0", "--json"))).toMatchObject({
    code: "NOT_FOUND",
  });
});

test("an export that breaks off leaves no file", async () => {
  const name = await trained([1], []);
  const blobs = join(platform.folder, "data/blobs");
  const kept = (await readdir(blobs, { recursive: true })).filter((path) => /rollouts~.*\.jsonl$/.test(path));
  expect(kept.length).toBeGreaterThan(0);
  for (const path of kept) await rm(join(blobs, path));
  const ran = await run("train", "export", name, "--what", "rollouts", "-o", "broken.jsonl", "--json");
  expect(errorOf(ran)).toMatchObject({ code: "NETWORK" });
  expect(errorOf(ran).message).toContain("broke off");
  expect((await readdir(workspace)).filter((file) => file.startsWith("broken"))).toEqual([]);
});

test("logs shows the lines of a level and above, and of a source", async () => {
  const submitted = await run("eval", "submit", EVAL, "--yes", "--json");
  const { resource } = lastJson(submitted.stdout) as { resource: { name: string } };
  const { held } = await heldRun(resource.name);
  await held.log("good morning");
  const said = async (...only: string[]): Promise<string[]> => {
    const ran = await run("eval", "logs", resource.name, ...only, "--json");
    return (lastJson(ran.stdout) as { items: { message: string }[] }).items.map(({ message }) => message);
  };
  expect(await said()).toContain("good morning");
  expect(await said("--source", "test")).toEqual(["good morning"]);
  expect(await said("--source", "test", "--level", "info")).toEqual(["good morning"]);
  expect(await said("--source", "test", "--level", "warning")).toEqual([]);
  expect(await said("--source", "tes")).toEqual([]);
  await held.finish();
});
