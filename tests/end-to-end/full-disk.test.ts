import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { personalEnvironment, startOsmosis } from "./support/command.ts";
import { mountSmallDisk, whyNoDisk } from "./support/disk.ts";
import { addExecutionJournal, executionsIn, keyOfRollout, repeatedWork } from "./support/journal.ts";
import { startTestPlatform } from "./support/platform.ts";
import { evalEnd, recordedRollouts } from "./support/runs.ts";
import { until } from "./support/until.ts";

const reason = await whyNoDisk();
const ROWS = 40;

test("a disk that runs full in the middle of a run says so, and the run goes on when there is room again", async (context) => {
  if (reason !== undefined) context.skip(reason);
  await using disk = await mountSmallDisk(600);
  await using platform = await startTestPlatform({ data: join(disk.folder, "data") });
  await addExecutionJournal(platform.workspace);
  await platform.push("Write a journal");
  await platform.answerOf("dataset", "upload", "data/multiply.jsonl");
  const journal = join(platform.workspace, "../journal.jsonl");
  const file = "configs/eval/full-disk.toml";
  const config = [
    "[experiment]",
    'rollout = "multiply-local-openai"',
    'entrypoint = "main.ts"',
    'model_path = "osmosis/tiny-agent"',
    'dataset = "multiply"',
    "[evaluation]",
    `limit = ${ROWS}`,
    "batch_size = 4",
    "[advanced]",
    "max_tokens = 64",
    "[secrets]",
    "required = []",
    "[env]",
    `EXECUTIONS = ${JSON.stringify(journal)}`,
    'LATE_MS = "500"',
  ];
  await writeFile(join(platform.workspace, file), config.join("\n"));
  const { resource } = await platform.answerOf("eval", "submit", file, "--yes");
  // The command's own envelope.
  const { name } = resource as { name: string };
  await until("a part is recorded", async () => {
    return (await recordedRollouts(platform.client, "eval", name)).length >= 4;
  });

  await disk.fill();
  const upload = await platform.osmosis(
    "dataset",
    "upload",
    "data/multiply.jsonl",
    "--overwrite",
    "--yes",
    "--json",
  );
  expect(upload.code).toBe(1);
  expect(upload.stderr).toMatch(/STORAGE|NETWORK/);
  expect(upload.stderr).toMatch(/[Ff]ree some space/);
  await disk.free();

  const ended = await evalEnd(platform.client, name);
  expect(ended.eval_run).toMatchObject({ status: "finished", error: null });
  expect(ended.results).toMatchObject({ total_runs: ROWS, graded: ROWS });
  const recorded = await recordedRollouts(platform.client, "eval", name);
  expect(new Set(recorded.map(keyOfRollout)).size).toBe(ROWS);
  expect(repeatedWork(await executionsIn(journal), recorded)).toEqual([]);
  expect(await platform.answerOf("dataset", "preview", "multiply", "--rows", "1")).toMatchObject({
    data: { returned_rows: 1 },
  });
  expect(await platform.stop()).toMatchObject({ code: 130 });
}, 180_000);

test("osmosis up on a full disk and on a read-only one names the folder and the remedy", async (context) => {
  if (reason !== undefined) context.skip(reason);
  await using disk = await mountSmallDisk(4);
  const data = join(disk.folder, "data");
  const up = () =>
    startOsmosis(["up", "--data", data, "--port", "0", "--json"], {
      cwd: "/",
      env: personalEnvironment(disk.folder),
    }).ended;
  await disk.fill();
  const full = await up();
  expect(full).toMatchObject({ code: 1, stdout: "" });
  expect(JSON.parse(full.stderr)).toMatchObject({
    error: {
      code: "STORAGE",
      message: expect.stringContaining(data),
      hint: expect.stringContaining("free some space"),
    },
  });
  await disk.free();
  await disk.makeReadOnly();
  const readOnly = await up();
  expect(readOnly).toMatchObject({ code: 1, stdout: "" });
  expect(JSON.parse(readOnly.stderr)).toMatchObject({
    error: {
      code: "STORAGE",
      message: expect.stringContaining(data),
      hint: expect.stringContaining("read-only"),
    },
  });
});
