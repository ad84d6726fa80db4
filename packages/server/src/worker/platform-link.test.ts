import { createServer, type RequestListener } from "node:http";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { create, extract } from "tar";
import { expect, test } from "vitest";
import { z } from "zod";
import { LeaseLost } from "./platform-call.ts";
import { openPlatformLink, type PlatformLink } from "./platform-link.ts";

const never = new AbortController().signal;

/** A platform that answers with `handle`. */
async function platform(
  handle: RequestListener,
): Promise<AsyncDisposable & { readonly link: PlatformLink; readonly requests: string[] }> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(request.url ?? "");
    handle(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return {
    link: openPlatformLink({ url: `http://127.0.0.1:${port}`, token: "token", fetch, patienceMs: 2000 }),
    requests,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Answers with half of the body and breaks off, so many times; then with the whole. */
function brokenOff(body: string, times: number): RequestListener {
  return (_request, response) => {
    response.writeHead(200, { "content-length": Buffer.byteLength(body) });
    if (times-- > 0) response.write(body.slice(0, body.length / 2), () => response.destroy());
    else response.end(body);
  };
}

test("what breaks off in the middle is read again from its beginning", async () => {
  await using here = await platform(brokenOff("0123456789", 2));
  expect(await here.link.read("/file", (body) => text(body), { signal: never })).toBe("0123456789");
  expect(here.requests).toEqual(["/file", "/file", "/file"]);
});

test("lines come once, though the connection broke, and characters that lie across chunks stay whole", async () => {
  const rows = Array.from({ length: 2000 }, (_, n) => ({ n, text: "Zürich 東京 🧮" }));
  const body = rows.map((row) => JSON.stringify(row)).join("\n");
  await using here = await platform(brokenOff(body, 1));
  const Row = z.object({ n: z.int(), text: z.string() });
  expect(await here.link.run("run", "lease").lines("rows", Row, never)).toEqual(rows);
});

test("an archive arrives as the reader of archives takes it", async () => {
  const folder = await mkdtemp(join(tmpdir(), "osmosis-link-"));
  await using cleanup = new AsyncDisposableStack();
  cleanup.defer(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, "notes.md"), "notes");
  await create({ cwd: folder, file: join(folder, "all.tar") }, ["notes.md"]);
  const archive = await readFile(join(folder, "all.tar"));
  await using here = await platform((_request, response) => response.end(archive));
  await mkdir(join(folder, "out"));
  const unpack = extract({ cwd: join(folder, "out"), strict: true });
  await here.link.run("run", "lease").source((body) => pipeline(body, unpack), never);
  expect(await readFile(join(folder, "out/notes.md"), "utf8")).toBe("notes");
});

test("what the reader does wrong is not tried again", async () => {
  await using here = await platform(brokenOff("0123456789", 0));
  const read = here.link.read("/file", async () => Promise.reject(new Error("disk full")), { signal: never });
  await expect(read).rejects.toThrow("disk full");
  expect(here.requests).toEqual(["/file"]);
});

test("a platform that stays away is given up after the patience", async () => {
  await using here = await platform((_request, response) => response.destroy());
  await expect(here.link.read("/file", (body) => text(body), { signal: never })).rejects.toMatchObject({
    code: "NETWORK",
  });
  expect(here.requests.length).toBeGreaterThan(2);
});

test("a conflict is the end of the lease", async () => {
  await using here = await platform((_request, response) =>
    response.writeHead(409, { "content-type": "application/json" }).end(`{"error":"given away"}`),
  );
  await expect(here.link.run("run", "lease").heartbeat(never)).rejects.toThrow(LeaseLost);
  await expect(here.link.run("run", "lease").source(async () => {}, never)).rejects.toThrow(LeaseLost);
});
