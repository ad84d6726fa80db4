import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";

const LAUNCHER = join(import.meta.dirname, "../../../fixtures/skyrl_server.py");
const START_MS = 120_000;

/** A real SkyRL server with one base model, whose name is the folder that it is in. */
export async function startSkyrl(python: string, model: string): Promise<AsyncDisposable & { url: string }> {
  const data = await mkdtemp(join(tmpdir(), "osmosis-skyrl-"));
  const port = await freePort();
  // A group of its own, because it starts its engine as a child.
  const child = spawn(python, [LAUNCHER, model, String(port), data], {
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (text: Buffer) => output.push(String(text)));
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const url = `http://127.0.0.1:${port}`;
  const stop = async () => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    } catch {
      // It is gone.
    }
    await exited;
    await rm(data, { recursive: true, force: true });
  };
  const end = Date.now() + START_MS;
  while (child.exitCode === null && Date.now() < end) {
    const answer = await fetch(`${url}/api/v1/healthz`).catch(() => undefined);
    if (answer?.ok === true) return { url, [Symbol.asyncDispose]: stop };
    await wait(500);
  }
  await stop();
  throw new Error(`SkyRL did not start:\n${output.join("").slice(-4000)}`);
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}
