import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { childEnvironment } from "./environment.ts";
import { startRolloutProcess, type RolloutProcess, type RolloutTimeouts } from "./rollout-process.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "osmosis-rollout-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

async function start(
  code: string | undefined,
  timeouts: Partial<RolloutTimeouts> = {},
): Promise<RolloutProcess> {
  const path = join(folder, "rollouts/demo/main.ts");
  await mkdir(dirname(path), { recursive: true });
  if (code !== undefined) await writeFile(path, code);
  return startRolloutProcess({
    folder,
    rollout: "demo",
    entrypoint: "main.ts",
    environment: childEnvironment(process.env),
    variables: { GREETING: "hello" },
    artifactRoot: join(folder, "artifacts"),
    onLine: () => {},
    timeouts: { startMs: 20_000, silenceMs: 20_000, ...timeouts },
    fetch,
    signal: new AbortController().signal,
  });
}

const LISTENING = `
  import { createServer } from "node:http";
  const { _OSMOSIS_ROLLOUT_PORT: port, _OSMOSIS_ROLLOUT_INSTANCE_ID: instance_id, GREETING } = process.env;
  createServer((request, response) => {
    if (request.url === "/crash") process.exit(9);
    if (request.url === "/block") for (;;);
    response.end(JSON.stringify({ status: "ok", instance_id, GREETING, token: process.env.OSMOSIS_TOKEN ?? null }));
  }).listen(Number(port), "127.0.0.1");
`;

test("an entrypoint that listens is ready, in its own environment", async () => {
  await using server = await start(LISTENING);
  const health = (await (await fetch(`${server.url}/health`)).json()) as Record<string, unknown>;
  expect({ greeting: health["GREETING"], token: health["token"] }).toEqual({
    greeting: "hello",
    token: null,
  });
});

test("an entrypoint that dies later is named with its exit code", async () => {
  await using server = await start(LISTENING);
  await fetch(`${server.url}/crash`).catch(() => {});
  expect(await server.failed).toMatchObject({
    code: "VALIDATION",
    message: expect.stringContaining(
      "rollouts/demo/main.ts ended in the middle of the run, with exit code 9",
    ),
  });
});

test("an entrypoint that blocks its event loop for good is named, and ended", async () => {
  await using server = await start(LISTENING, { silenceMs: 1200 });
  const blocked = fetch(`${server.url}/block`).catch(() => "ended");
  expect(await server.failed).toMatchObject({
    message: expect.stringContaining("rollouts/demo/main.ts gave no answer for 1.2 s"),
    hint: expect.stringContaining("event loop"),
  });
  await server[Symbol.asyncDispose]();
  expect(await blocked).toBe("ended");
});

test("an entrypoint that throws is refused with its own words", async () => {
  await expect(start(`throw new Error("no such toy");`)).rejects.toThrow(
    /rollouts\/demo\/main\.ts exited with code 1 before it listened: .*no such toy/,
  );
});

test("an entrypoint that never listens is refused after the start timeout", async () => {
  await expect(start(`setInterval(() => {}, 1000);`, { startMs: 600 })).rejects.toThrow(
    /did not listen on port \d+ within 0.6 s/,
  );
});

test("an entrypoint that ends silently is refused", async () => {
  await expect(start(`process.exitCode = 0;`)).rejects.toThrow(
    /exited with code 0 before it listened: it printed nothing/,
  );
});

test("an entrypoint that is not in the commit is named", async () => {
  await expect(start(undefined)).rejects.toThrow("rollouts/demo/main.ts is not in the commit.");
});
