import { OsmosisError } from "@osmosis/protocol";
import { Hono, type Context } from "hono";
import type { Platform } from "../platform.ts";
import type { ByteRange } from "./blob-store.ts";

/** Uploads and downloads by signed URL. Bodies are never compressed: clients compare sizes. */
export function blobRoutes(platform: Platform): Hono {
  const app = new Hono();

  app.put("/blobs/*", async (c) => {
    const grant = platform.blobUrls.verify({ method: "PUT", key: keyOf(c), query: c.req.query() });
    const stored = await platform.blobs.put(grant.key, c.req.raw.body ?? new Uint8Array(), {
      ...(grant.maxBytes === undefined ? {} : { maxBytes: grant.maxBytes }),
      signal: c.req.raw.signal,
    });
    return c.body(null, 200, { ETag: `"${stored.sha256}"` });
  });

  app.get("/blobs/*", async (c) => {
    const grant = platform.blobUrls.verify({ method: "GET", key: keyOf(c), query: c.req.query() });
    const info = await platform.blobs.stat(grant.key);
    if (info === undefined) throw new OsmosisError("NOT_FOUND", "There is no such file.");
    const headers: Record<string, string> = {
      "Accept-Ranges": "bytes",
      "Cache-Control": "private, no-store",
      "Content-Type": "application/octet-stream",
      "Content-Disposition": `attachment; filename*=UTF-8''${encodeURIComponent(grant.fileName ?? baseName(grant.key))}`,
      "Content-Security-Policy": "sandbox",
      "X-Content-Type-Options": "nosniff",
    };
    const range = parseRange(c.req.header("range"), info.sizeBytes);
    if (range === "unsatisfiable") {
      return c.body(null, 416, { ...headers, "Content-Range": `bytes */${info.sizeBytes}` });
    }
    const found = await platform.blobs.get(grant.key, range);
    if (found === undefined) throw new OsmosisError("NOT_FOUND", "There is no such file.");
    if (range === undefined) {
      return c.body(found.body, 200, { ...headers, "Content-Length": String(info.sizeBytes) });
    }
    return c.body(found.body, 206, {
      ...headers,
      "Content-Length": String(range.end - range.start + 1),
      "Content-Range": `bytes ${range.start}-${range.end}/${info.sizeBytes}`,
    });
  });

  return app;
}

function keyOf(c: Context): string {
  const path = new URL(c.req.url).pathname.slice("/blobs/".length);
  return path
    .split("/")
    .map((segment) => decodeSegment(segment))
    .join("/");
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new OsmosisError("VALIDATION", "The path is not percent-encoded UTF-8.");
  }
}

function baseName(key: string): string {
  return key.slice(key.lastIndexOf("/") + 1);
}

/** One range of the `Range` header; several at once, and what is not understood, mean the whole file. */
function parseRange(
  header: string | undefined,
  sizeBytes: number,
): Required<ByteRange> | "unsatisfiable" | undefined {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (match === null || (match[1] === "" && match[2] === "")) return undefined;
  const [, first = "", last = ""] = match;
  const start = first === "" ? Math.max(0, sizeBytes - Number(last)) : Number(first);
  const end = first === "" || last === "" ? sizeBytes - 1 : Math.min(Number(last), sizeBytes - 1);
  return start >= sizeBytes || start > end ? "unsatisfiable" : { start, end };
}
