import { existsSync } from "node:fs";
import { cp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { COMMIT, startHub, type FakeHub } from "./hub.ts";
import { errorOf, lastJson } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";

const TINY_AGENT = fileURLToPath(new URL("../../engine/models/tiny-agent", import.meta.url));
const ID = "Acme/Tiny-Agent";

let platform: TestPlatform;
beforeAll(async () => {
  platform = await startPlatform();
}, 120_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

let cache: string;
beforeEach(() => {
  cache = join(platform.folder, "cache");
});

/** Pulls from the hub under a name of its own. */
function pull(
  hub: { readonly url: string },
  name: string,
  more: { env?: Record<string, string>; signal?: AbortSignal; args?: readonly string[] } = {},
) {
  return platform.run(["model", "pull", ID, "--name", name, "--json", ...(more.args ?? [])], {
    ...(more.signal === undefined ? {} : { signal: more.signal }),
    env: { XDG_CACHE_HOME: cache, OSMOSIS_HUB_URL: hub.url, ...more.env },
  });
}

async function withHub(use: (hub: FakeHub) => Promise<void>): Promise<void> {
  await using hub = await startHub(ID, TINY_AGENT);
  await use(hub);
  expect(hub.faults).toEqual([]);
  await rm(cache, { recursive: true, force: true });
}

test("a model of the hub becomes a base model, and its download is cleaned away", async () => {
  await withHub(async (hub) => {
    const pulled = await pull(hub, "pull/plain");
    expect(pulled).toMatchObject({ code: 0, stderr: "" });
    expect(lastJson(pulled.stdout)).toMatchObject({
      operation: "model.pull",
      resource: { model_name: "pull/plain", warnings: [] },
    });
    expect(hub.ranges).toEqual([""]);
    expect(existsSync(join(cache, "osmosis/models", ID, "0123456789abcdef0123456789abcdef01234567"))).toBe(
      false,
    );
  });
}, 60_000);

test("a connection that breaks off is taken up where it broke", async () => {
  await withHub(async (hub) => {
    hub.misbehave = (request) => (["break-off", "error", "break-off"] as const)[request];
    expect((await pull(hub, "pull/broken")).code).toBe(0);
    expect(hub.ranges[0]).toBe("");
    expect(hub.ranges.slice(1).every((range) => /^bytes=[1-9]\d*-$/.test(range))).toBe(true);
    expect(hub.ranges).toHaveLength(4);
  });
}, 60_000);

test("a hub that is asked too often is asked again later", async () => {
  await withHub(async (hub) => {
    hub.misbehave = (request) => (request === 0 ? "busy" : undefined);
    expect((await pull(hub, "pull/busy")).code).toBe(0);
    expect(hub.ranges).toEqual(["", ""]);
  });
}, 60_000);

test("a pull that was interrupted goes on at the next call", async () => {
  await withHub(async (hub) => {
    hub.misbehave = (request) => (request === 0 ? "stall" : undefined);
    const interruption = new AbortController();
    void hub.stalled.then(() => setTimeout(() => interruption.abort(new Error("Ctrl-C")), 200));
    expect((await pull(hub, "pull/again", { signal: interruption.signal })).code).not.toBe(0);
    expect((await pull(hub, "pull/again")).code).toBe(0);
    expect(hub.ranges[0]).toBe("");
    expect(hub.ranges[1]).toMatch(/^bytes=[1-9]\d*-$/);
  });
}, 60_000);

test("bytes damaged on the way are fetched anew, and refused when they stay damaged", async () => {
  await withHub(async (hub) => {
    hub.misbehave = (request) => (request === 0 ? "damage" : undefined);
    expect((await pull(hub, "pull/damaged")).code).toBe(0);
    expect(hub.ranges).toEqual(["", ""]);
    hub.misbehave = () => "damage";
    const refused = await pull(hub, "pull/lost");
    expect(errorOf(refused)).toMatchObject({
      code: "VALIDATION",
      message: expect.stringContaining("arrived damaged"),
    });
  });
}, 60_000);

test("a model that is larger than the disk is refused before anything is fetched", async () => {
  await withHub(async (hub) => {
    hub.announcedBytes = 1e17;
    const refused = await pull(hub, "pull/large");
    expect(errorOf(refused)).toMatchObject({
      code: "STORAGE",
      message: expect.stringMatching(/^Acme\/Tiny-Agent needs 100000 TB more .* has .+ free\.$/),
      hint: expect.stringContaining("XDG_CACHE_HOME"),
    });
    expect(hub.ranges).toEqual([]);
    expect(existsSync(join(cache, "osmosis/models", ID, COMMIT, "config.json"))).toBe(false);
  });
}, 60_000);

test("a gated model needs a token, which goes to the hub and nowhere else", async () => {
  await using hub = await startHub(ID, TINY_AGENT, { token: "hf_secret" });
  const without = await pull(hub, "pull/gated");
  expect(errorOf(without)).toMatchObject({
    code: "AUTH_REQUIRED",
    hint: expect.stringContaining("HF_TOKEN"),
  });
  expect((await pull(hub, "pull/gated", { env: { HF_TOKEN: "hf_secret" } })).code).toBe(0);
  expect(hub.faults).toEqual([]);
}, 60_000);

test("what cannot be trained is refused before its weights are fetched", async () => {
  const folder = join(platform.folder, "gemma");
  await cp(TINY_AGENT, folder, { recursive: true });
  await writeFile(join(folder, "config.json"), '{"model_type":"gemma4"}');
  await using hub = await startHub(ID, folder);
  expect(errorOf(await pull(hub, "pull/gemma"))).toMatchObject({
    message: expect.stringContaining('"gemma4" is not supported'),
    hint: expect.stringContaining("--without-weights"),
  });
  expect(hub.ranges).toEqual([]);
  await rm(join(folder, "model.safetensors"));
  await writeFile(join(folder, "tiny.Q8_0.gguf"), "GGUF");
  await using other = await startHub(ID, folder);
  expect(errorOf(await pull(other, "pull/gguf"))).toMatchObject({
    message: expect.stringContaining("has no model.safetensors"),
    hint: expect.stringContaining("tiny.Q8_0.gguf"),
  });
}, 60_000);

test("without weights none are asked for, and the model may be of any architecture", async () => {
  // What an earlier pull left belongs to another model of that name.
  await rm(cache, { recursive: true, force: true });
  const folder = join(platform.folder, "weightless");
  await cp(TINY_AGENT, folder, { recursive: true });
  await writeFile(
    join(folder, "config.json"),
    '{"model_type":"gemma4","text_config":{"vocab_size":500,"max_position_embeddings":4096}}',
  );
  await using hub = await startHub(ID, folder);
  hub.announcedBytes = 1e17;
  const pulled = await pull(hub, "pull/weightless", { args: ["--without-weights"] });
  expect(pulled).toMatchObject({ code: 0, stderr: "" });
  expect(lastJson(pulled.stdout)).toMatchObject({
    operation: "model.pull",
    message: expect.stringContaining("without weights: vocabulary 500, context 4,096"),
    resource: { model_name: "pull/weightless", parameters: null },
  });
  expect(hub.ranges).toEqual([]);
  expect(hub.faults).toEqual([]);
}, 60_000);

test("an unknown model, a hub that is no hub, and one that is down are told apart", async () => {
  await using hub = await startHub(ID, TINY_AGENT);
  const unknown = await platform.run(["model", "pull", "Acme/Nothing", "--json"], {
    env: { XDG_CACHE_HOME: cache, OSMOSIS_HUB_URL: hub.url },
  });
  expect(errorOf(unknown)).toMatchObject({ code: "NOT_FOUND" });
  const down = await pull({ url: "http://127.0.0.1:9" }, "pull/down");
  expect(errorOf(down)).toMatchObject({ code: "NETWORK", hint: expect.stringContaining("OSMOSIS_HUB_URL") });
  expect((await pull({ url: "mirror" }, "pull/no-url")).code).toBe(2);
  const strange = await platform.run(["model", "pull", "../../etc", "--name", "pull/strange", "--json"]);
  expect(strange.code).toBe(2);
}, 60_000);
