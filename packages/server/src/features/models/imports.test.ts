import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient, modelRoutes, OsmosisError, type Client, type ModelFile } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";
import type { BlobStore } from "../../blobs/blob-store.ts";
import { registerBaseModels } from "./base-models.ts";
import { createModelImports } from "./imports.ts";

let server: TestServer;
let client: Client;
/** The files of a model by name. */
let model: Map<string, Buffer>;

beforeAll(async () => {
  server = await startTestServer();
  client = createClient({
    baseUrl: server.url,
    fetch,
    headers: () => ({ authorization: `Bearer ${server.ownerToken}` }),
  });
  const folder = join(server.platform.config.modelsFolder, "tiny-agent");
  const names = (await readdir(folder)).filter((name) => !name.endsWith(".md"));
  model = new Map(
    await Promise.all(names.map(async (name) => [name, await readFile(join(folder, name))] as const)),
  );
}, 60_000);
afterAll(() => server?.[Symbol.asyncDispose]());

/** The model with other weights, so that nothing of it is known to the server. */
function otherModel(seed: number): Map<string, Buffer> {
  const weights = Buffer.from(model.get("model.safetensors") ?? "");
  weights.writeUInt8(seed, weights.length - 1);
  const config = Buffer.concat([model.get("config.json") ?? Buffer.alloc(0), Buffer.from(" ".repeat(seed))]);
  return new Map([...model, ["model.safetensors", weights], ["config.json", config]]);
}

const described = (files: ReadonlyMap<string, Buffer>): ModelFile[] =>
  [...files].map(([name, bytes]) => ({
    name,
    size_bytes: bytes.length,
    sha256: createHash("sha256").update(bytes).digest("hex"),
  }));

async function start(model_name: string, files: ReadonlyMap<string, Buffer>, more = {}) {
  return await client.call(modelRoutes.startImport, {
    body: { model_name, files: described(files), ...more },
  });
}

async function send(model_name: string, files: ReadonlyMap<string, Buffer>, bytesOf = files): Promise<void> {
  for (const { name, upload } of (await start(model_name, files)).uploads) {
    if (upload.method !== "multipart") throw new Error("not in parts");
    for (const { presigned_url, part_number } of upload.presigned_urls) {
      const from = (part_number - 1) * upload.part_size;
      const body = new Uint8Array(bytesOf.get(name)?.subarray(from, from + upload.part_size) ?? []);
      expect((await fetch(presigned_url, { method: "PUT", body })).status).toBe(200);
    }
  }
}

const finish = (model_name: string, files: ReadonlyMap<string, Buffer>, more = {}) =>
  client.call(modelRoutes.import, { body: { model_name, files: described(files), ...more } });

async function refusal(attempt: Promise<unknown>): Promise<OsmosisError> {
  const error: unknown = await attempt.catch((caught: unknown) => caught);
  if (!(error instanceof OsmosisError)) throw new Error("it was not refused");
  return error;
}

test("an imported model is listed, resolved by its name for runs, and stays when the server starts again", async () => {
  const files = otherModel(1);
  await send("acme/one", files);
  const registered = await finish("acme/one", files);
  expect(registered).toMatchObject({ model_name: "acme/one", creator_name: "Owner" });
  expect(registered.parameters).toBeGreaterThan(900_000);
  const { platform } = server;
  await registerBaseModels({ ...platform, shipped: platform.config.modelsFolder, own: "/nowhere" });
  const found = await platform.models.resolve("any", "acme/one", { allowProviders: false, env: {} });
  if (!("model" in found) || found.model.type !== "local") throw new Error("not resolved");
  expect(found.model.base_files.map((file) => file.name).toSorted()).toEqual([...files.keys()].toSorted());
  for (const { key, sha256, name } of found.model.base_files) {
    const blob = await platform.blobs.get(key);
    const bytes = Buffer.from(await new Response(blob?.body).arrayBuffer());
    expect(createHash("sha256").update(bytes).digest("hex"), name).toBe(sha256);
  }
});

test("what the server has is not asked for again, and an import that broke off goes on", async () => {
  const files = otherModel(2);
  const first = await start("acme/two", files);
  // Tokenizer files are those of the model that ships with the server.
  expect(first.uploads.map(({ name }) => name).toSorted()).toEqual(["config.json", "model.safetensors"]);
  expect((await refusal(finish("acme/two", files))).message).toMatch(
    /is not complete: of part 1 0 of \d+ bytes/,
  );
  await send("acme/two", files);
  const again = await start("acme/two", files);
  const parts = again.uploads.flatMap(({ upload }) =>
    upload.method === "multipart" ? upload.presigned_urls : [],
  );
  expect(parts).toEqual([]);
  await finish("acme/two", files);
  expect((await start("acme/three", files)).uploads).toEqual([]);
});

test("bytes other than the announced ones are refused, and are not kept", async () => {
  const files = otherModel(3);
  await send(
    "acme/four",
    files,
    otherModel(4).set("config.json", files.get("config.json") ?? Buffer.alloc(0)),
  );
  expect((await refusal(finish("acme/four", files))).message).toContain(
    "model.safetensors arrived with another SHA-256",
  );
  expect((await start("acme/four", files)).uploads.map(({ name }) => name)).toContain("model.safetensors");
});

test("a model whose files were lost or cut off on the server is made whole by importing it again", async () => {
  const files = otherModel(6);
  await send("acme/lost", files);
  await finish("acme/lost", files);
  const { blobs } = server.platform;
  const [weights, config] = ["model.safetensors", "config.json"].map((name) => {
    return described(files).find((file) => file.name === name)?.sha256 ?? "";
  });
  await blobs.delete(`models/files/${config}`);
  await blobs.put(`models/files/${weights}`, Buffer.from("cut off"));
  for (const { name, upload } of (await start("acme/lost", files, { overwrite: true })).uploads) {
    if (upload.method !== "multipart") throw new Error("not in parts");
    const [part] = upload.presigned_urls;
    const body = new Uint8Array(files.get(name) ?? []);
    expect((await fetch(part?.presigned_url ?? "", { method: "PUT", body })).status).toBe(200);
  }
  await finish("acme/lost", files, { overwrite: true });
  expect((await blobs.stat(`models/files/${weights}`))?.sizeBytes).toBe(
    files.get("model.safetensors")?.length,
  );
  expect((await blobs.stat(`models/files/${config}`))?.sizeBytes).toBe(files.get("config.json")?.length);
});

test("a name is replaced only when that is asked for, and never one that ships with the server", async () => {
  const files = otherModel(5);
  await send("acme/five", files);
  const { id } = await finish("acme/five", files);
  const others = otherModel(8);
  expect(await refusal(start("acme/five", others))).toMatchObject({ code: "CONFLICT" });
  const fewer = new Map([...files].filter(([name]) => name !== "tokenizer_config.json"));
  fewer.set("tokenizer_config.json", Buffer.from("{}"));
  expect(await refusal(finish("acme/five", fewer))).toMatchObject({ code: "CONFLICT" });
  await send("acme/other", others);
  expect((await finish("acme/five", others, { overwrite: true })).id).toBe(id);
  expect((await refusal(start("osmosis/tiny-agent", files))).message).toContain("osmosis/");
  expect((await refusal(start("openai/gpt-5", files))).message).toContain("openai/");
});

test("of two who bring a model under one name at the same moment the second is refused", async () => {
  const [one, other] = [otherModel(7), otherModel(9)];
  await send("acme/one-of-them", one);
  await send("acme/the-other", other);
  const results = await Promise.allSettled([finish("acme/twice", one), finish("acme/twice", other)]);
  expect(results.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
  expect(results.find((one) => one.status === "rejected")?.reason).toMatchObject({
    code: "CONFLICT",
    message: "There is a base model named acme/twice already.",
  });
});

test("whoever registers a model once more, because no answer came, gets the same answer, and has nothing to send", async () => {
  const files = otherModel(10);
  await send("acme/again", files);
  const first = await finish("acme/again", files);
  expect(await start("acme/again", files)).toEqual({ uploads: [] });
  const third = await finish("acme/again", new Map([...files].toReversed()));
  expect(third).toMatchObject({ id: first.id, created_at: first.created_at });
  const friend = await server.platform.accounts.tokens.mint({
    userId: (await addUser()).id,
    kind: "personal",
    name: "test",
    lifetimeDays: 1,
  });
  const headers = () => ({ authorization: `Bearer ${friend.token}` });
  const another = createClient({ baseUrl: server.url, fetch, headers });
  const body = { model_name: "acme/again", files: described(files) };
  expect((await refusal(another.call(modelRoutes.import, { body }))).message).toContain(
    "not yours to replace",
  );
});

test("whoever registers while the files are still put together waits for them, and finds no half of their parts", async () => {
  const files = otherModel(11);
  await send("acme/still", files);
  const firstHasEnded = Promise.withResolvers<void>();
  const begun = new Set<string>();
  const { platform } = server;
  const blobs: BlobStore = {
    ...platform.blobs,
    async compose(key, parts) {
      // Who puts the same parts together a second time does so when the first has removed them.
      const [part = ""] = parts;
      if (begun.has(part)) await firstHasEnded.promise;
      begun.add(part);
      return await platform.blobs.compose(key, parts);
    },
  };
  const imports = createModelImports({ ...platform, blobs });
  const request = { model_name: "acme/still", files: described(files), overwrite: false };
  const [first, second] = [1, 2].map(() => imports.finish(platform.owner, request));
  await first;
  firstHasEnded.resolve();
  expect((await second)?.id).toBe((await first)?.id);
});

async function addUser(): Promise<{ id: string }> {
  const user = { id: "friend", name: "Friend", email: "friend@example.com", email_verified: true };
  await server.platform.db.insertInto("users").values(user).execute();
  return user;
}

test("what is no model is refused before anything is sent", async () => {
  const without = new Map([...model].filter(([name]) => name !== "tokenizer.json"));
  expect((await refusal(start("acme/six", without))).message).toContain("has no tokenizer.json");
  for (const name of ["no-owner", "../x/y", "a/b/c", "a/ b", "a/.."]) {
    expect(await refusal(start(name, model))).toMatchObject({ code: "VALIDATION" });
  }
  for (const name of ["../config.json", "a/b.json", "run.py", ".json"]) {
    const strange = new Map([...model, [name, Buffer.from("{}")]]);
    expect(await refusal(start("acme/six", strange))).toMatchObject({ code: "VALIDATION" });
  }
});

test("a model of more parts than could be told is refused at once", async () => {
  const files = described(model).map((file) =>
    file.name === "model.safetensors" ? { ...file, size_bytes: Number.MAX_SAFE_INTEGER - 1024 ** 3 } : file,
  );
  const body = { model_name: "acme/huge", files };
  expect(await refusal(client.call(modelRoutes.startImport, { body }))).toMatchObject({
    code: "VALIDATION",
    message: expect.stringContaining("2 TiB"),
  });
});

test("a model of another architecture, or with broken weights, is not registered", async () => {
  const gemma = new Map([...model, ["config.json", Buffer.from('{"model_type":"gemma4"}')]]);
  await send("acme/seven", gemma);
  expect((await refusal(finish("acme/seven", gemma))).message).toContain('"gemma4" is not supported');
  const broken = new Map([...model, ["model.safetensors", Buffer.alloc(4000, 255)]]);
  await send("acme/eight", broken);
  expect((await refusal(finish("acme/eight", broken))).message).toContain("header is longer than the file");
  const header = '{"a":{"shape":[1]},"a":{"shape":[2]}}';
  const twice = Buffer.concat([Buffer.alloc(8), Buffer.from(header)]);
  twice.writeBigUInt64LE(BigInt(header.length));
  const doubled = new Map([...model, ["model.safetensors", twice]]);
  await send("acme/nine", doubled);
  expect((await refusal(finish("acme/nine", doubled))).message).toContain("its header names a twice");
  const { items } = await server.platform.models.listBase({ limit: 50, offset: 0 });
  expect(items.map((one) => one.model_name)).not.toContain("acme/seven");
  expect(items.map((one) => one.model_name)).not.toContain("acme/eight");
  expect(items.map((one) => one.model_name)).not.toContain("acme/nine");
});

test("a model without weights is registered whatever its architecture, and the platform's own trainer does not offer it", async () => {
  const weightless = new Map([...model].filter(([name]) => name !== "model.safetensors"));
  weightless.set("config.json", Buffer.from('{"model_type":"gemma4","text_config":{"vocab_size":431}}'));
  await send("acme/no-size", weightless);
  expect((await refusal(finish("acme/no-size", weightless))).message).toContain("no max_position_embeddings");
  const config = Buffer.from(`${model.get("config.json")?.toString("utf8")} `);
  weightless.set("config.json", config);
  await send("acme/weightless", weightless);
  expect(await finish("acme/weightless", weightless)).toMatchObject({
    parameters: null,
    creator_name: "Owner",
  });
  const { headers } = await createTestWorkspace(server);
  const path = `/api/cli/models/base/${encodeURIComponent("acme/weightless")}`;
  expect(await server.json("GET", path, { headers })).toMatchObject({
    body: { parameters: null, context_window: 512 },
  });
  const { baseModels } = server.platform.tinker;
  expect((await baseModels.list()).map(({ name }) => name)).not.toContain("acme/weightless");
  await expect(baseModels.open("acme/weightless")).rejects.toMatchObject({ code: "NOT_FOUND" });
  weightless.set("model.safetensors.index.json", Buffer.from('{"weight_map":{}}'));
  expect((await refusal(start("acme/half", weightless))).message).toContain("has no model.safetensors");
});

test("nobody imports without signing in", async () => {
  const answer = await server.json("POST", "/api/cli/models/base", { json: {}, token: null });
  expect(answer.status).toBe(401);
});

test("a base model is asked for by name, whose slash is encoded, or by id", async () => {
  const { headers } = await createTestWorkspace(server);
  const ask = (name: string) =>
    server.json("GET", `/api/cli/models/base/${encodeURIComponent(name)}`, { headers });
  const found = await ask("osmosis/tiny-agent");
  expect(found).toMatchObject({
    status: 200,
    body: { model_name: "osmosis/tiny-agent", namespace: "osmosis", context_window: 512 },
  });
  expect(await ask((found.body as { id: string }).id)).toEqual(found);
  expect(await ask("osmosis/other")).toMatchObject({ status: 404, body: { code: "NOT_FOUND" } });
});

test("a model that the engine does not build is described, without its context", async () => {
  const { platform } = server;
  const own = await mkdtemp(join(tmpdir(), "osmosis-models-"));
  try {
    await mkdir(join(own, "lab/strange"), { recursive: true });
    await writeFile(join(own, "lab/strange/config.json"), '{"model_type":"gemma4"}');
    await registerBaseModels({ ...platform, shipped: platform.config.modelsFolder, own });
    const { headers } = await createTestWorkspace(server);
    const path = `/api/cli/models/base/${encodeURIComponent("lab/strange")}`;
    expect(await server.json("GET", path, { headers })).toMatchObject({
      status: 200,
      body: { model_name: "lab/strange", context_window: null },
    });
    expect((await platform.tinker.baseModels.list()).map(({ name }) => name)).not.toContain("lab/strange");
  } finally {
    await rm(own, { recursive: true, force: true });
  }
});
