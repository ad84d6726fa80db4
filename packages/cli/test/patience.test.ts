import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestWorker } from "../../server/src/testing-worker.ts";
import { startCommand } from "./child.ts";
import { lastJson } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";
import { until } from "./until.ts";

/** Commands that stay with a run, while its platform goes away and comes back. */

let platform: TestPlatform;
let workspace: string;

beforeAll(async () => {
  platform = await startPlatform();
  workspace = join(platform.folder, "workspace");
  await ok("workspace", "create", "demo", "--clone", workspace);
  await ok("dataset", "upload", "data/multiply.jsonl");
}, 120_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

async function ok(...argv: string[]): Promise<Record<string, unknown>> {
  const cwd = argv[0] === "workspace" ? platform.folder : workspace;
  const ran = await platform.run([...argv, "--json"], { cwd });
  if (ran.code !== 0) throw new Error(ran.stderr);
  // The command's own envelope.
  return (lastJson(ran.stdout) as { resource: Record<string, unknown> }).resource;
}

const isHealthy = (): Promise<boolean> =>
  fetch(`${platform.url}/api/health`).then(
    ({ ok: isOk }) => isOk,
    () => false,
  );

/** `kill -9` for the server process. `osmosis up` starts another one on the same port, once it is let. */
async function killServer(): Promise<{ letComeBack: () => void }> {
  const { stdout } = await promisify(execFile)("ps", ["-eo", "pid=,ppid=,args="], {
    maxBuffer: 16 * 1024 * 1024,
  });
  const data = join(platform.folder, "data");
  const line = stdout
    .split("\n")
    .find((one) => one.includes("server/src/main.ts") && one.includes(`--data ${data} `));
  const [, server = 0, up = 0] = (/^\s*(\d+)\s+(\d+)/.exec(line ?? "") ?? []).map(Number);
  if (server === 0) throw new Error("the server does not run");
  process.kill(up, "SIGSTOP");
  process.kill(server, "SIGKILL");
  return { letComeBack: () => process.kill(up, "SIGCONT") };
}

test(
  "a log that is followed and a run that is waited for go on after a restart of the server",
  { timeout: 120_000 },
  async () => {
    const config = "configs/training/multiply-local-openai.toml";
    const waiting = startCommand(["train", "submit", config, "--yes", "--wait"], {
      cwd: workspace,
      env: { ...platform.env },
    });
    const secret = (await readFile(join(platform.folder, "data/worker-secret"), "utf8")).trim();
    const worker = createTestWorker({ url: platform.url, workerSecret: secret });
    const job = await worker.claim(20_000);
    if (job === null) throw new Error(`no run came: ${waiting.stderr()}`);
    const held = worker.run(job);
    const following = startCommand(["train", "logs", job.run_name, "--follow"], {
      cwd: workspace,
      env: { ...platform.env },
    });
    await held.log("before the restart");
    await until("the log is followed", () => following.stdout().includes("before the restart"));

    const { letComeBack } = await killServer();
    try {
      for (const { stderr } of [following, waiting]) {
        await until("the silence is told", () => stderr().includes("the platform does not answer; waiting"));
      }
    } finally {
      letComeBack();
    }
    await until("the server is back", isHealthy, 60_000);
    await held.log("after the restart");
    await held.commit(1);
    await held.finish();
    const followed = await following.ended;
    expect(followed).toMatchObject({ code: 0 });
    expect(followed.stdout.match(/before the restart/g)).toHaveLength(1);
    expect(followed.stdout.match(/after the restart/g)).toHaveLength(1);
    expect(followed.stderr.match(/does not answer/g)).toHaveLength(1);
    const waited = await waiting.ended;
    expect(waited).toMatchObject({ code: 0 });
    expect(waited.stdout).toContain(`${job.run_name} finished`);
  },
);

test("what waiting does not change is told at once", async () => {
  const ran = await platform.run(["train", "logs", "nobody", "--follow", "--json"], { cwd: workspace });
  expect(ran.code).toBe(1);
  expect(ran.stderr).toContain("NOT_FOUND");
});
