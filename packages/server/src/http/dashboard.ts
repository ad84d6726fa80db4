import { createHash } from "node:crypto";
import { readFile, realpath } from "node:fs/promises";
import { extname, join, sep } from "node:path";
import { Hono } from "hono";

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".ico": "image/x-icon",
  ".woff2": "font/woff2",
  ".json": "application/json",
  ".map": "application/json",
  ".txt": "text/plain; charset=utf-8",
  ".webmanifest": "application/manifest+json",
};

/** A page of the dashboard may load from this server only. Charts and popups set styles of elements. */
const CONTENT_POLICY =
  "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; base-uri 'none'; " +
  "frame-ancestors 'none'; form-action 'self'";

/**
 * The built dashboard. A file that exists is served; any other page a browser asks for gets `index.html`, whose router
 * knows the rest. Files below `assets/` carry a hash in their names and are cached for ever, everything else is asked
 * for anew each time.
 */
export function dashboardRoutes(folder: string): Hono {
  const app = new Hono();
  app.get("*", async (c, next) => {
    const path = new URL(c.req.url).pathname;
    if (path.startsWith("/api/") || path.startsWith("/blobs/")) return await next();
    const file = await readInside(folder, path);
    const wantsPage = (c.req.header("accept") ?? "").includes("text/html");
    if (file === undefined && !wantsPage) return await next();
    const bytes = file ?? (await readInside(folder, "/index.html"));
    if (bytes === undefined) return c.html(MISSING_PAGE, 503);
    const etag = `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 27)}"`;
    const isHashed = file !== undefined && path.startsWith("/assets/");
    const headers = {
      "Content-Type": TYPES[file === undefined ? ".html" : extname(path)] ?? "application/octet-stream",
      "Cache-Control": isHashed ? "public, max-age=31536000, immutable" : "no-cache",
      "Content-Security-Policy": CONTENT_POLICY,
      "Referrer-Policy": "same-origin",
      "X-Content-Type-Options": "nosniff",
      ETag: etag,
    };
    if (c.req.header("if-none-match") === etag) return c.body(null, 304, headers);
    return c.body(bytes, 200, headers);
  });
  return app;
}

/** The file that a URL path names, unless it lies outside the folder, also by a symbolic link. */
async function readInside(folder: string, path: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
  try {
    const root = await realpath(folder);
    const file = await realpath(join(root, decodeURIComponent(path)));
    if (!file.startsWith(root + sep)) return undefined;
    return new Uint8Array(await readFile(file));
  } catch {
    // Missing, a folder, or not decodable: in each case there is no such file.
    return undefined;
  }
}

const MISSING_PAGE = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Osmosis</title>
<body style="font-family: system-ui; max-width: 40rem; margin: 4rem auto; padding: 0 1rem">
<h1>The dashboard is not built</h1>
<p>The server runs, and the <code>osmosis</code> command works. To build the dashboard, run this in the checkout and reload:</p>
<pre>npm run build:web</pre></body></html>`;
