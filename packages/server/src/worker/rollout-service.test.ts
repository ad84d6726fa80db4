import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { RolloutServerError, systemClock } from "@osmosis/controller";
import { afterEach, beforeEach, expect, test } from "vitest";
import { childEnvironment } from "./environment.ts";
import { openRolloutService } from "./rollout-service.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "osmosis-service-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const LISTENING = `
  import { createServer } from "node:http";
  const { _OSMOSIS_ROLLOUT_PORT: port, _OSMOSIS_ROLLOUT_INSTANCE_ID: instance_id } = process.env;
  createServer((request, response) => {
    if (request.url === "/rollout/cancel") process.exit(9);
    response.end(JSON.stringify({ status: "ok", instance_id }));
  }).listen(Number(port), "127.0.0.1");
`;
const signal = new AbortController().signal;

async function open(code: string) {
  const warnings: string[] = [];
  await mkdir(join(folder, "rollouts/demo"), { recursive: true });
  await writeFile(join(folder, "rollouts/demo/main.ts"), code);
  const service = await openRolloutService({
    folder,
    rollout: "demo",
    entrypoint: "main.ts",
    environment: childEnvironment(process.env),
    variables: {},
    artifactRoot: join(folder, "artifacts"),
    onLine: () => {},
    timeouts: { startMs: 20_000, silenceMs: 20_000 },
    fetch,
    clock: systemClock,
    warn: (text) => warnings.push(text),
    signal,
  });
  const { server } = service;
  const { lives } = server;
  if (lives === undefined) throw new Error("it has lives");
  /** Lets the process die, and waits until the life of the rollout has ended. */
  async function dieWith(rolloutId: string): Promise<unknown> {
    const life = await lives?.enter(rolloutId, signal);
    const ended = new Promise((resolve) =>
      life?.addEventListener("abort", () => resolve(life.reason), { once: true }),
    );
    await server.cancel("any");
    return await ended;
  }
  return {
    service,
    server,
    lives,
    warnings,
    dieWith,
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  };
}

test("a server that dies takes its rollouts with it, is started again, and serves the next ones", async () => {
  await using opened = await open(LISTENING);
  const { server, lives, warnings, dieWith } = opened;
  const reason = await dieWith("first");
  expect(reason).toBeInstanceOf(RolloutServerError);
  expect(reason).toMatchObject({
    kind: "unreachable",
    message: expect.stringMatching(/^The rollout server died: .*main\.ts ended .*exit code 9/),
  });
  expect(warnings).toEqual([expect.stringContaining("It is started again (1 of 3 times)")]);

  const life = await lives.enter("second", signal);
  expect(life.aborted).toBe(false);
  expect((await server.health(signal)).status).toBe("ok");
  expect([lives.hasTaken("first"), lives.hasTaken("second")]).toEqual([true, false]);
});

test("the fourth death is the last one, and says so", async () => {
  await using opened = await open(LISTENING);
  const { service, warnings, dieWith } = opened;
  for (let death = 1; death <= 4; death++) await dieWith(`rollout-${death}`);
  expect(await service.failed).toMatchObject({
    code: "VALIDATION",
    message: expect.stringMatching(/exit code 9.*It had been started again 3 times before\.$/),
    hint: expect.stringContaining("Nothing in the rollout may end its process"),
  });
  expect(warnings).toHaveLength(3);
});

test("a server that does not come up again ends the wait of all, with its own words", async () => {
  const marker = JSON.stringify(join(folder, "started"));
  await using opened = await open(`
    import { existsSync, writeFileSync } from "node:fs";
    if (existsSync(${marker})) throw new Error("the toy box is empty");
    writeFileSync(${marker}, "");
    ${LISTENING}
  `);
  const { service, lives, dieWith } = opened;
  await dieWith("first");
  await expect(lives.enter("second", signal)).rejects.toThrow("the toy box is empty");
  expect((await service.failed).message).toContain("the toy box is empty");
});
