/** A worker that is killed in the middle of a step, at a real trainer over HTTP: no gradient counts twice or not at all. */
import { spawn, type ChildProcess } from "node:child_process";
import { createServer } from "node:http";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { startTrainerServer, type TrainerServer } from "./testing.ts";

const SCRIPT = join(import.meta.dirname, "../../../test/train-by-url.ts");
const STEPS = 3;

vi.setConfig({ testTimeout: 180_000, hookTimeout: 120_000 });

let trainer: TrainerServer;
beforeAll(async () => {
  trainer = await startTrainerServer();
});
afterAll(() => trainer[Symbol.asyncDispose]());

/** Passes everything on; the trainer has executed a request before the worker that sent it is killed. */
async function startProxy(deaths: readonly (readonly [path: string, nth: number])[]) {
  const left = deaths.map(([path, nth]) => ({ path, nth }));
  const counts = new Map<string, number>();
  const state: { worker: ChildProcess | undefined } = { worker: undefined };
  const server = createServer((request, response) => {
    const forward = async (): Promise<void> => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const headers = new Headers();
      for (const name of ["content-type", "accept", "x-api-key"]) {
        const value = request.headers[name];
        if (typeof value === "string") headers.set(name, value);
      }
      const method = request.method ?? "GET";
      const answer = await fetch(`${trainer.server.url}${request.url ?? ""}`, {
        method,
        headers,
        ...(method === "GET" ? {} : { body: Buffer.concat(chunks) }),
      });
      const body = Buffer.from(await answer.arrayBuffer());
      const path = (request.url ?? "").replace("/api/v1", "");
      const nth = (counts.get(path) ?? 0) + 1;
      counts.set(path, nth);
      const next = left[0];
      if (next !== undefined && next.path === path && nth >= next.nth) {
        left.shift();
        counts.clear();
        state.worker?.kill("SIGKILL");
        return void request.socket.destroy();
      }
      response
        .writeHead(answer.status, {
          "content-type": answer.headers.get("content-type") ?? "application/json",
        })
        .end(body);
    };
    forward().catch(() => request.socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" ? (address?.port ?? 0) : 0;
  return {
    url: `http://127.0.0.1:${port}`,
    state,
    left,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Lets workers follow each other until one reaches the end; what it prints, and how many it took. */
async function trainThrough(deaths: Parameters<typeof startProxy>[0]) {
  await using proxy = await startProxy(deaths);
  const folder = await mkdtemp(join(tmpdir(), "osmosis-recovery-"));
  try {
    for (let lives = 1; ; lives++) {
      const worker = spawn(process.execPath, [SCRIPT, proxy.url, trainer.apiKey, folder, String(STEPS)], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      proxy.state.worker = worker;
      let output = "";
      worker.stdout.on("data", (text: Buffer) => (output += String(text)));
      const signal = await new Promise<NodeJS.Signals | null>((resolve) =>
        worker.once("close", (_code, by) => resolve(by)),
      );
      if (signal === null)
        return { lives, logprobs: JSON.parse(output) as number[][], left: proxy.left.length };
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

test("killed after a gradient, after an update and after saving, a run ends with the weights of an undisturbed one", async () => {
  const undisturbed = await trainThrough([]);
  expect(undisturbed.lives).toBe(1);
  const killed = await trainThrough([
    ["/forward_backward", 1],
    ["/optim_step", 1],
    ["/save_weights", 1],
    ["/optim_step", 2],
    ["/save_weights", 1],
  ]);
  expect(killed).toEqual({ lives: 6, logprobs: undisturbed.logprobs, left: 0 });
});
