import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createEmbeddedService } from "@osmosis/engine";
import { TrainingRunConfig, type TrainingJob } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openFrozenModels } from "./frozen-models.ts";

const TINY_AGENT = join(import.meta.dirname, "../../../engine/models/tiny-agent");
let root = "";

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "frozen-models-"));
});
afterAll(() => rm(root, { recursive: true }));

function assignment(name: string): TrainingJob["model"] {
  return { type: "local", name, base_model: name, base_files: [], adapter_files: [] };
}

function jobOf(advanced: object): TrainingJob {
  return {
    kind: "training",
    run_id: "run",
    run_name: "run",
    attempt: 1,
    lease_token: "token",
    lease_seconds: 30,
    rollout: "r",
    entrypoint: "main.ts",
    commit_sha: "0".repeat(40),
    env: {},
    secrets: {},
    model: assignment("own/model"),
    teacher: assignment("other/model"),
    row_count: 1,
    config: TrainingRunConfig.parse({
      experiment: { rollout: "r", entrypoint: "main.ts", model_path: "own/model", dataset: "d" },
      advanced: { teacher_model: "other/model", ...advanced },
    }),
    total_steps: 1,
    committed_steps: 0,
    state_files: [],
    past_steps: [],
  };
}

/** Opens what a job compares with, whose teacher lies in that folder. */
async function open(teacher: string, advanced: object = {}) {
  await using opened = new AsyncDisposableStack();
  const service = opened.use(createEmbeddedService({ threads: 1 }));
  const lines: string[] = [];
  const frozen = await openFrozenModels(
    jobOf(advanced),
    { source: { folder: TINY_AGENT }, service },
    {
      tools: { files: { folderOf: async () => teacher }, openService: async () => service },
      opened,
      folder: root,
      log: { write: (_level: string, _step: string, message: string) => void lines.push(message) },
      signal: new AbortController().signal,
    } as unknown as Parameters<typeof openFrozenModels>[2], // the cache and the log of a worker, as far as they are used
  );
  return { roles: Object.keys(frozen), lines };
}

async function copyWith(name: string, change: (texts: Record<string, string>) => Record<string, string>) {
  const folder = join(root, name);
  await mkdir(folder);
  const texts: Record<string, string> = {};
  for (const file of ["tokenizer.json", "config.json"]) {
    texts[file] = await readFile(join(TINY_AGENT, file), "utf8");
  }
  for (const [file, text] of Object.entries(change(texts))) await writeFile(join(folder, file), text);
  return folder;
}

test("a teacher is opened, and the reference beside it where the divergence counts", async () => {
  expect((await open(TINY_AGENT)).roles).toEqual(["teacher"]);
  expect((await open(TINY_AGENT, { kl_coef: 0.1 })).roles).toEqual(["reference", "teacher"]);
});

test("a teacher whose token ids mean something else is refused, and the message names one", async () => {
  const folder = await copyWith("swapped", (texts) => ({
    ...texts,
    "tokenizer.json": (texts["tokenizer.json"] ?? "").replace("<|im_start|>", "<|other|>"),
  }));
  await expect(open(folder)).rejects.toMatchObject({
    code: "VALIDATION",
    message: expect.stringMatching(
      /^other\/model cannot teach own\/model: their tokenizers differ, token \d+ is "<\|im_start\|>" in the one/,
    ),
  });
});
