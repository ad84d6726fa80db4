import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";

/** A hub that answers as the real one does, and refuses what the real one or its storage would not be asked. */
export type FakeHub = AsyncDisposable & {
  readonly url: string;
  /** Range headers of the requests for weights, "" for none. */
  readonly ranges: string[];
  /** Requests that a well-behaved client does not make. */
  readonly faults: string[];
  /** Called before each answer of the storage; says how it fails, if it does. */
  misbehave: (request: number) => "break-off" | "damage" | "stall" | "error" | "busy" | undefined;
  /** The size of the weights as the list of files tells it; undefined for the real one. */
  announcedBytes: number | undefined;
  /** Resolves when the storage stalls. */
  readonly stalled: Promise<void>;
};

export const COMMIT = "0123456789abcdef0123456789abcdef01234567";

/** Serves the files of a folder as the model `id`; with a token, to its bearer only. */
export async function startHub(
  id: string,
  folder: string,
  { token }: { token?: string } = {},
): Promise<FakeHub> {
  const files = new Map<string, Buffer>();
  for (const name of await readdir(folder)) files.set(name, await readFile(join(folder, name)));
  files.set("pytorch_model.bin", Buffer.from("never asked for"));
  const faults: string[] = [];
  const ranges: string[] = [];
  const stall = Promise.withResolvers<void>();
  let storageRequests = 0;

  const storage = createServer((request, response) => {
    const bytes = files.get(decodeURIComponent(request.url ?? "").replace("/storage/", ""));
    if (request.headers.authorization !== undefined) faults.push("the token was sent to the storage");
    if (request.headers["accept-encoding"] !== "identity")
      faults.push("the storage was asked for compressed bytes");
    if (bytes === undefined) return answer(response, 404);
    const range = request.headers.range ?? "";
    ranges.push(range);
    const start = Number(/^bytes=(\d+)-$/.exec(range)?.[1] ?? 0);
    if (start >= bytes.length) return answer(response, 416, { "content-range": `bytes */${bytes.length}` });
    const body = Buffer.from(bytes.subarray(start));
    const failure = hub.misbehave(storageRequests++);
    if (failure === "busy") return answer(response, 429, { "retry-after": "1" });
    if (failure === "error") return answer(response, 503);
    if (failure === "damage") body.writeUInt8(body.readUInt8(body.length - 1) ^ 1, body.length - 1);
    response.writeHead(range === "" ? 200 : 206, {
      "content-length": body.length,
      ...(range === "" ? {} : { "content-range": `bytes ${start}-${bytes.length - 1}/${bytes.length}` }),
    });
    const part = body.subarray(0, Math.ceil(body.length / 3));
    if (failure === "break-off") response.write(part, () => setImmediate(() => response.destroy()));
    else if (failure === "stall") response.write(part, () => stall.resolve());
    else response.end(body);
  });

  function answerHub(request: IncomingMessage, response: ServerResponse): void {
    const path = decodeURIComponent(request.url ?? "");
    if (token !== undefined && request.headers.authorization !== `Bearer ${token}`)
      return answer(response, 401);
    if (path === `/api/models/${id}/revision/main?blobs=true`) {
      const siblings = [...files].map(([rfilename, { length }]) => ({
        rfilename,
        size: (rfilename.endsWith(".safetensors") ? hub.announcedBytes : undefined) ?? length,
      }));
      return answer(response, 200, {}, JSON.stringify({ id, sha: COMMIT, siblings }));
    }
    const prefix = `/${id}/resolve/${COMMIT}/`;
    const name = path.startsWith(prefix) ? path.slice(prefix.length) : "";
    const bytes = files.get(name);
    if (bytes === undefined) return answer(response, 404);
    if (name === "README.md" || name.endsWith(".bin")) faults.push(`${name} was asked for`);
    if (!name.endsWith(".safetensors")) {
      const etag = createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");
      return answer(response, 200, { etag: `"${etag}"`, "x-repo-commit": COMMIT }, bytes);
    }
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    answer(response, 302, {
      location: `${urlOf(storage)}/storage/${name}`,
      "x-linked-etag": `"${sha256}"`,
      "x-linked-size": String(bytes.length),
    });
  }

  const front = createServer(answerHub);
  for (const server of [storage, front])
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const hub: FakeHub = {
    url: urlOf(front),
    ranges,
    faults,
    misbehave: () => undefined,
    announcedBytes: undefined,
    stalled: stall.promise,
    async [Symbol.asyncDispose]() {
      for (const server of [storage, front]) {
        server.closeAllConnections();
        await new Promise((done) => server.close(done));
      }
    },
  };
  return hub;
}

function urlOf(server: Server): string {
  // A server that listens on TCP has an address of this kind.
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function answer(
  response: ServerResponse,
  status: number,
  headers: Record<string, string> = {},
  body?: string | Buffer,
): void {
  response.writeHead(status, headers).end(body);
}
