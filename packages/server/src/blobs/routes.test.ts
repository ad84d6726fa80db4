import { createHash } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestServer, type TestServer } from "../testing.ts";

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server[Symbol.asyncDispose]());

const put = (url: string, body: string) => fetch(url, { method: "PUT", body });
const urls = () => server.platform.blobUrls;

test("a signed URL takes an upload and gives it back, with the hash as ETag", async () => {
  const upload = urls().sign({ method: "PUT", key: "data/rows 1.jsonl", maxBytes: 5 });
  const stored = await put(upload, "hello");
  expect(stored.status).toBe(200);
  expect(stored.headers.get("etag")).toBe(`"${createHash("sha256").update("hello").digest("hex")}"`);
  const download = await fetch(
    urls().sign({ method: "GET", key: "data/rows 1.jsonl", fileName: "größe.jsonl" }),
  );
  expect(await download.text()).toBe("hello");
  expect(Object.fromEntries(download.headers)).toMatchObject({
    "content-length": "5",
    "content-disposition": "attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe.jsonl",
    "x-content-type-options": "nosniff",
  });
  expect(download.headers.has("content-encoding")).toBe(false);
});

test("a download can be asked for in ranges", async () => {
  await put(urls().sign({ method: "PUT", key: "ranged" }), "0123456789");
  const get = async (range: string) => {
    const response = await fetch(urls().sign({ method: "GET", key: "ranged" }), { headers: { range } });
    return {
      status: response.status,
      range: response.headers.get("content-range"),
      text: await response.text(),
    };
  };
  expect(await get("bytes=2-4")).toEqual({ status: 206, range: "bytes 2-4/10", text: "234" });
  expect(await get("bytes=-3")).toEqual({ status: 206, range: "bytes 7-9/10", text: "789" });
  expect(await get("bytes=8-")).toEqual({ status: 206, range: "bytes 8-9/10", text: "89" });
  expect(await get("bytes=10-")).toEqual({ status: 416, range: "bytes */10", text: "" });
  expect(await get("bytes=a-b")).toEqual({ status: 200, range: null, text: "0123456789" });
});

test("a URL is good for one method, one blob, its size and a quarter of an hour", async () => {
  await put(urls().sign({ method: "PUT", key: "secret" }), "s");
  const download = urls().sign({ method: "GET", key: "other" });
  expect((await fetch(download.replace("/blobs/other", "/blobs/secret"))).status).toBe(403);
  expect((await put(download, "x")).status).toBe(403);
  const upload = urls().sign({ method: "PUT", key: "small", maxBytes: 3 });
  expect((await put(upload, "four")).status).toBe(400);
  expect((await put(upload.replace("max=3", "max=9"), "four")).status).toBe(403);
  expect((await fetch(urls().sign({ method: "GET", key: "small" }))).status).toBe(404);
  const late = urls().sign({ method: "GET", key: "secret" });
  expect((await fetch(late)).status).toBe(200);
  server.advance(15 * 60_000 + 1000);
  expect((await fetch(late)).status).toBe(403);
  server.advance(-15 * 60_000 - 1000);
});

test("without a signature there is nothing to see", async () => {
  expect((await server.request("GET", "/blobs/secret")).status).toBe(403);
  expect((await server.request("GET", "/blobs/..%2f..%2fmaster-key")).status).toBe(403);
});
