import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FileRef } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestServer, type TestServer } from "../testing.ts";
import { openFileCache, type FileCache } from "./file-cache.ts";
import { openPlatformLink } from "./platform-link.ts";

/** Files of a model that go wrong after the model was registered. */

const never = new AbortController().signal;

let server: TestServer;
let root: string;
beforeAll(async () => {
  server = await startTestServer();
  root = await mkdtemp(join(tmpdir(), "osmosis-cache-"));
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  await rm(root, { recursive: true, force: true });
});

/** A worker's cache in the folder `name`; the same name is the same worker after a restart. */
function cacheOf(name: string): FileCache {
  const link = openPlatformLink({ url: server.url, token: "none", fetch, patienceMs: 1000 });
  return openFileCache(join(root, name), link);
}

async function store(key: string, text: string): Promise<FileRef> {
  const { blobs, blobUrls } = server.platform;
  const { sha256 } = await blobs.put(key, Buffer.from(text));
  const url = blobUrls.sign({ method: "GET", key });
  return { name: "model.safetensors", url, sha256, size_bytes: Buffer.byteLength(text) };
}

test("a model's file that was deleted on the platform is named, with what to do", async () => {
  const file = await store("models/files/deleted", "weights");
  await server.platform.blobs.delete("models/files/deleted");
  const folder = join(root, "deleted");
  await expect(cacheOf("one").folderOf([file], folder, never)).rejects.toMatchObject({
    code: "STORAGE",
    message: expect.stringMatching(/cannot give model\.safetensors: .* answered 404/),
    hint: expect.stringContaining("--overwrite"),
  });
});

test("a file that was changed or cut off on the platform is named, and none of it is kept", async () => {
  const file = await store("models/files/changed", "weights");
  for (const text of ["Weights", "weigh", "weights and more"]) {
    await server.platform.blobs.put("models/files/changed", Buffer.from(text));
    await expect(cacheOf("two").folderOf([file], join(root, "changed"), never)).rejects.toMatchObject({
      code: "STORAGE",
      message: expect.stringContaining("model.safetensors arrived damaged"),
    });
    expect(await readdir(join(root, "two", file.sha256.slice(0, 2)))).toEqual([]);
  }
  await server.platform.blobs.put("models/files/changed", Buffer.from("weights"));
  const folder = await cacheOf("two").folderOf([file], join(root, "changed"), never);
  expect(await readFile(join(folder, "model.safetensors"), "utf8")).toBe("weights");
});

test("a file that was changed on the worker's disk is fetched again", async () => {
  const file = await store("models/files/kept", "weights");
  const kept = join(root, "three", file.sha256.slice(0, 2), file.sha256);
  const folder = join(root, "kept");
  await cacheOf("three").folderOf([file], folder, never);
  await writeFile(kept, "Weights");
  await cacheOf("three").folderOf([file], folder, never);
  expect(await readFile(join(folder, "model.safetensors"), "utf8")).toBe("weights");

  const worker = cacheOf("three");
  await worker.folderOf([file], folder, never);
  await server.platform.blobs.delete("models/files/kept");
  await worker.folderOf([file], folder, never);
  expect(await readFile(join(folder, "model.safetensors"), "utf8")).toBe("weights");
});

test("two who need a file at the same moment both get it whole", async () => {
  const text = "weights ".repeat(1_000_000);
  const file = await store("models/files/large", text);
  const worker = cacheOf("four");
  const folders = await Promise.all(
    ["run", "replay"].map((name) => worker.folderOf([file], join(root, name), never)),
  );
  for (const folder of folders) {
    expect((await readFile(join(folder, "model.safetensors"), "utf8")) === text).toBe(true);
  }
  expect(await readdir(join(root, "four", file.sha256.slice(0, 2)))).toEqual([file.sha256]);
});

test("weights of one step are not kept beyond the folder that they were fetched for", async () => {
  const folder = join(root, "weights");
  for (const step of ["one", "two"]) {
    const file = await store(`runs/any/${step}`, `weights of step ${step}`);
    await cacheOf("five").folderOf([file], folder, never, "once");
    expect(await readFile(join(folder, "model.safetensors"), "utf8")).toBe(`weights of step ${step}`);
    expect(await readdir(folder)).toEqual(["model.safetensors"]);
  }
  expect(await readdir(join(root, "five")).catch(() => [])).toEqual([]);
});

test("what a killed worker had fetched a part of is deleted with the next file, and what still comes is left alone", async () => {
  const folder = join(root, "six", "ab");
  await mkdir(folder, { recursive: true });
  const [left, coming] = ["left", "coming"].map((name) => join(folder, `${name}.part`));
  for (const path of [left, coming]) await writeFile(path ?? "", "half");
  const yesterday = new Date(Date.now() - 24 * 3600_000);
  await utimes(left ?? "", yesterday, yesterday);
  await cacheOf("six").folderOf([await store("models/files/six", "six")], join(root, "for-six"), never);
  expect(await readdir(folder)).toEqual(["coming.part"]);
});
