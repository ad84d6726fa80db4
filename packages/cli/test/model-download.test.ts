import { randomBytes } from "node:crypto";
import { mkdir, readFile, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { RUN_LEASE_HEADER, createClient, fillPath, workerRoutes, workerStreams } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { errorOf, lastJson } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";
import { until } from "./until.ts";

/** Checkpoints of a real platform, brought there as a worker brings them. */

let platform: TestPlatform;
let workspace: string;
let run: string;
let runId: string;

const WEIGHTS = randomBytes(24 * 1024 * 1024);
const CONFIG = Buffer.from('{"peft_type":"LORA"}\n');

beforeAll(async () => {
  platform = await startPlatform();
  workspace = join(platform.folder, "workspace");
  await ok("workspace", "create", "demo", "--clone", workspace);
  await ok("dataset", "upload", "data/multiply.jsonl");
  const submitted = await ok("train", "submit", "configs/training/multiply-local-openai.toml", "--yes");
  run = String(submitted["name"]);

  const secret = (await readFile(join(platform.folder, "data/worker-secret"), "utf8")).trim();
  const authorization = `Bearer ${secret}`;
  const client = createClient({ baseUrl: platform.url, fetch, headers: () => ({ authorization }) });
  const identity = { worker: "test", instance: "test", wait_ms: 20_000 };
  const { job } = await client.call(workerRoutes.claim, { body: identity });
  if (job === null) throw new Error("no run came");
  runId = job.run_id;
  const headers = { authorization, [RUN_LEASE_HEADER]: job.lease_token };
  for (const [step, method, config, weights] of [
    [1, "lora", "adapter_config.json", "adapter_model.safetensors"],
    [2, "lora", "adapter_config.json", "adapter_model.safetensors"],
    [3, "full", "config.json", "model.safetensors"],
  ] as const) {
    for (const [name, body] of [
      [config, CONFIG],
      [weights, WEIGHTS],
    ] as const) {
      const path = fillPath(workerStreams.file, { run_id: runId, path: `checkpoints/${step}/${name}` });
      const response = await fetch(new URL(path, platform.url), { method: "PUT", body, headers });
      if (!response.ok) throw new Error(await response.text());
    }
    await client.call(workerRoutes.checkpoint, {
      params: { run_id: runId },
      headers,
      body: {
        step,
        reward: step / 2,
        method,
        files: [config, weights],
      },
    });
  }
}, 120_000);

afterAll(async () => {
  await platform?.[Symbol.asyncDispose]();
});

async function ok(...argv: string[]): Promise<Record<string, unknown>> {
  const ran = await platform.run([...argv, "--json"], {
    cwd: argv[0] === "workspace" ? platform.folder : workspace,
  });
  if (ran.code !== 0) throw new Error(ran.stderr);
  // The command's own envelope.
  return (lastJson(ran.stdout) as { resource: Record<string, unknown> }).resource;
}

const download = (args: readonly string[], signal?: AbortSignal) =>
  platform.run(["model", "download", ...args, "--json"], {
    cwd: workspace,
    ...(signal === undefined ? {} : { signal }),
  });

test("a checkpoint is downloaded whole, and its folder is not replaced by itself", async () => {
  const folder = join(platform.folder, "models/first");
  const ran = await download([`${run}-step-2`, "-o", folder]);
  expect(ran).toMatchObject({ code: 0, stderr: "" });
  expect(lastJson(ran.stdout)).toMatchObject({
    operation: "model.download",
    resource: {
      name: `${run}-step-2`,
      output_path: folder,
      method: "lora",
      base_model: "osmosis/tiny-agent",
      bytes_downloaded: WEIGHTS.length + CONFIG.length,
    },
  });
  expect((await readdir(folder)).toSorted()).toEqual(["adapter_config.json", "adapter_model.safetensors"]);
  expect((await readFile(join(folder, "adapter_model.safetensors"))).equals(WEIGHTS)).toBe(true);
  expect((await readdir(join(platform.folder, "models"))).toSorted()).toEqual(["first"]);

  const again = await download([`${run}-step-1`, "-o", folder]);
  expect(again.code).toBe(1);
  expect(errorOf(again)).toMatchObject({ code: "CONFLICT" });
  expect((await download([`${run}-step-1`, "-o", folder, "--overwrite"])).code).toBe(0);
  expect((await readdir(join(platform.folder, "models"))).toSorted()).toEqual(["first"]);

  await writeFile(join(folder, "thesis.tex"), "years of work");
  const refused = await download([`${run}-step-1`, "-o", folder, "--overwrite"]);
  expect(errorOf(refused).message).toContain("holds more than a model");
  expect(await readFile(join(folder, "thesis.tex"), "utf8")).toBe("years of work");
});

test("what is done with a checkpoint next is said: an adapter is merged, a whole model is served", async () => {
  const adapter = join(platform.folder, "models/an adapter");
  expect(lastJson((await download([`${run}-step-1`, "-o", adapter])).stdout)).toMatchObject({
    next_steps_structured: [
      { command: `osmosis model download ${run}-step-1 --merge -o '${adapter}-merged'` },
    ],
  });
  const whole = join(platform.folder, "models/whole");
  // A whole model is one already.
  expect(lastJson((await download([`${run}-step-3`, "--merge", "-o", whole])).stdout)).toMatchObject({
    resource: { method: "full" },
    next_steps_structured: [{ command: `transformers serve ${whole}` }],
  });
  expect((await readdir(whole)).toSorted()).toEqual(["config.json", "model.safetensors"]);
});

test("the current folder, or one around it, is not replaced, even where it is empty", async () => {
  const around = join(workspace, ".osmosis/models");
  const inside = join(around, "inside");
  await mkdir(inside, { recursive: true });
  for (const output of [".", "..", around]) {
    const ran = await platform.run(
      ["model", "download", `${run}-step-1`, "-o", output, "--overwrite", "--json"],
      { cwd: inside },
    );
    expect(errorOf(ran)).toMatchObject({
      code: "CONFLICT",
      message: expect.stringContaining("You are inside of"),
    });
  }
  expect(await readdir(around)).toEqual(["inside"]);
});

test("a download that was interrupted goes on at the next call", async () => {
  const folder = join(platform.folder, "models/second");
  const file = join(`${folder}.partial`, "adapter_model.safetensors.partial");
  const interruption = new AbortController();
  const interrupted = download([`${run}-step-1`, "-o", folder], interruption.signal);
  await until("some of it is there", async () => {
    const size = (await stat(file).catch(() => undefined))?.size ?? 0;
    return size > 0;
  });
  interruption.abort();
  expect((await interrupted).code).toBe(130);
  await expect(stat(folder)).rejects.toThrow("ENOENT");
  const { size } = await stat(file);
  expect(size).toBeGreaterThan(0);
  expect(size).toBeLessThan(WEIGHTS.length);

  expect((await download([`${run}-step-1`, "-o", folder])).code).toBe(0);
  expect((await readFile(join(folder, "adapter_model.safetensors"))).equals(WEIGHTS)).toBe(true);
});

test("what lies beside the folder from another checkpoint does not get into it", async () => {
  const folder = join(platform.folder, "models/third");
  await mkdir(`${folder}.partial`, { recursive: true });
  await writeFile(join(`${folder}.partial`, "adapter_config.json"), "another one's");
  await writeFile(join(`${folder}.partial`, "adapter_model.safetensors.partial"), "another one's");
  await writeFile(join(`${folder}.partial`, "model.safetensors"), "another one's");
  expect((await download([`${run}-step-1`, "-o", folder])).code).toBe(0);
  expect((await readdir(folder)).toSorted()).toEqual(["adapter_config.json", "adapter_model.safetensors"]);
  expect((await readFile(join(folder, "adapter_config.json"))).equals(CONFIG)).toBe(true);
  expect((await readFile(join(folder, "adapter_model.safetensors"))).equals(WEIGHTS)).toBe(true);
});

test("a merge that failed leaves nothing in the folder of the checkpoint alone", async () => {
  const folder = join(platform.folder, "models/merged");
  // The weights of this checkpoint are noise.
  expect((await download([`${run}-step-1`, "--merge", "-o", folder])).code).toBe(1);
  expect((await readdir(`${folder}.partial`)).toSorted()).toContain("adapter");
  expect((await download([`${run}-step-1`, "-o", folder])).code).toBe(0);
  expect((await readdir(folder)).toSorted()).toEqual(["adapter_config.json", "adapter_model.safetensors"]);
});

test("what the file system refuses is told with its path, and is no fault of osmosis", async () => {
  await writeFile(join(platform.folder, "file"), "");
  const isFile = await download([`${run}-step-1`, "-o", join(platform.folder, "file"), "--overwrite"]);
  expect(errorOf(isFile)).toMatchObject({ code: "CONFLICT", message: expect.stringContaining("is a file") });
  const beneath = await download([`${run}-step-1`, "-o", join(platform.folder, "file/model")]);
  expect(errorOf(beneath)).toMatchObject({
    code: "STORAGE",
    message: expect.stringContaining(join(platform.folder, "file")),
    hint: "Check the path.",
  });
  // Where the system allows no folder at all.
  if (process.platform === "linux") {
    const nowhere = await download([`${run}-step-1`, "-o", "/proc/models/first"]);
    expect(errorOf(nowhere)).toMatchObject({ code: "STORAGE", hint: "Check the path." });
  }
});

test("bytes that are damaged on the platform are not taken for the checkpoint", async () => {
  const stored = join(platform.folder, "data/blobs/blobs/runs~", `${runId}~`, "files~/checkpoints~/2~");
  const blobs = join(stored, "adapter_config.json~");
  const [name = ""] = await readdir(blobs);
  await writeFile(join(blobs, name), '{"peft_type":"LORB"}\n');
  const folder = join(platform.folder, "models/fourth");
  const ran = await download([`${run}-step-2`, "-o", folder]);
  expect(ran.code).toBe(1);
  expect(errorOf(ran)).toMatchObject({ code: "VALIDATION" });
  expect(errorOf(ran).message).toContain("adapter_config.json arrived damaged");
  await expect(stat(folder)).rejects.toThrow("ENOENT");
});
