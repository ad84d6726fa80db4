import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { readServerConfig } from "./io.ts";

const sdk = fileURLToPath(new URL("./index.ts", import.meta.url));
const children: ChildProcess[] = [];
let folder = "";

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "osmosis-serve-"));
});

afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await rm(folder, { recursive: true, force: true });
});

/** Runs an entrypoint as a platform does; `run` is the body of its workflow. */
async function entrypoint(run: string, port: number) {
  const file = join(folder, "main.ts");
  await writeFile(
    file,
    `import { AgentWorkflow, LocalBackend, serveRollout } from ${JSON.stringify(sdk)};
     class Talk extends AgentWorkflow { async run(ctx) { ${run} } }
     await serveRollout({ backend: new LocalBackend({ workflow: Talk }) });`,
  );
  const child = spawn(process.execPath, [file], {
    env: { _OSMOSIS_ROLLOUT_PORT: String(port), _OSMOSIS_ROLLOUT_ARTIFACT_ROOT: folder },
  });
  children.push(child);
  let output = "";
  let errors = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (errors += chunk.toString()));
  const exit = new Promise<number | null>((resolve) => child.on("exit", resolve));
  return { child, exit, output: () => output, errors: () => errors };
}

async function urlOf(started: Awaited<ReturnType<typeof entrypoint>>): Promise<string> {
  await vi.waitFor(() => expect(started.output()).toMatch(/Rollout server on \S+: Talk/), {
    timeout: 20_000,
  });
  return /on (http:\S+):/.exec(started.output())?.[1] ?? "";
}

async function start(url: string): Promise<{ rollout_id: string; polling_lease_token: string }> {
  const body = { initial_messages: [], chat_completions_url: "http://127.0.0.1:9", grade: false };
  const response = await fetch(`${url}/rollout`, { method: "POST", body: JSON.stringify(body) });
  return (await response.json()) as { rollout_id: string; polling_lease_token: string };
}

async function result(url: string, admission: Awaited<ReturnType<typeof start>>): Promise<unknown> {
  const headers = { "X-Osmosis-Rollout-Lease": admission.polling_lease_token };
  return (await fetch(`${url}/rollout/${admission.rollout_id}/result`, { headers })).json();
}

describe("an entrypoint", () => {
  test("on a port that is taken says so and exits with 1", async () => {
    const blocker = createServer();
    await new Promise<void>((resolve) => blocker.listen(0, "127.0.0.1", resolve));
    const address = blocker.address();
    const port = typeof address === "object" && address ? address.port : 0;
    const started = await entrypoint("", port);
    expect(await started.exit).toBe(1);
    expect(started.errors()).toBe(
      `Port ${port} on 127.0.0.1 is taken.\nStop the program that listens there, or set _OSMOSIS_ROLLOUT_PORT to another port (0 is any free one).\n`,
    );
    blocker.close();
  });

  test("finishes what is under way on SIGTERM and exits with 0", async () => {
    const started = await entrypoint(
      `await new Promise((resolve) => setTimeout(resolve, 300)); return [{ role: "assistant", content: "done" }];`,
      0,
    );
    const url = await urlOf(started);
    const polled = result(url, await start(url));
    started.child.kill("SIGTERM");
    expect(await polled).toMatchObject({ status: "success", sample: { messages: [{ content: "done" }] } });
    expect(await started.exit).toBe(0);
    // A platform takes what comes from stderr for a warning.
    expect(started.errors()).toBe("");
  });

  test("ends in peace when nobody reads any more what it prints", async () => {
    const started = await entrypoint(
      `console.log("hello"); void Promise.reject(new Error("forgotten")); return [{ role: "assistant", content: "done" }];`,
      0,
    );
    const url = await urlOf(started);
    started.child.stdout.destroy();
    started.child.stderr.destroy();
    expect(await result(url, await start(url))).toMatchObject({ status: "success" });
    expect(await result(url, await start(url))).toMatchObject({ status: "success" });
    started.child.kill("SIGTERM");
    expect(await started.exit).toBe(0);
  });

  test("survives a promise that the workflow forgot", async () => {
    const started = await entrypoint(
      `void Promise.reject(new Error("forgotten")); return [{ role: "assistant", content: "done" }];`,
      0,
    );
    const url = await urlOf(started);
    expect(await result(url, await start(url))).toMatchObject({ status: "success" });
    expect(await result(url, await start(url))).toMatchObject({ status: "success" });
    expect(started.errors()).toMatch(/is an await missing\? Error: forgotten/);
  });
});

describe("the settings", () => {
  test("have defaults for everything", () => {
    expect(readServerConfig({})).toMatchObject({
      host: "127.0.0.1",
      port: 8000,
      serverToken: null,
      instanceId: null,
      artifactRoot: expect.stringMatching(/\.osmosis$/),
    });
  });

  test("refuse a port that is none", () => {
    expect(() => readServerConfig({ _OSMOSIS_ROLLOUT_PORT: "80x" })).toThrow("_OSMOSIS_ROLLOUT_PORT is 80x.");
  });
});
