import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { dashboardRoutes } from "./dashboard.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "osmosis-web-"));
  await mkdir(join(folder, "dist/assets"), { recursive: true });
  await writeFile(join(folder, "dist/index.html"), "<p>dashboard</p>");
  await writeFile(join(folder, "dist/assets/app-1a2b.js"), "run()");
  await writeFile(join(folder, "secret"), "secret");
  await symlink(join(folder, "secret"), join(folder, "dist/link"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function get(path: string, headers: Record<string, string> = { accept: "text/html" }) {
  const response = await dashboardRoutes(join(folder, "dist")).request(path, { headers });
  return { status: response.status, text: await response.text(), headers: response.headers };
}

test("a page that is no file is the dashboard, which routes by itself", async () => {
  for (const path of ["/", "/demo/runs/1", "/index.html"]) {
    const { status, text, headers } = await get(path);
    expect({ status, text }).toEqual({ status: 200, text: "<p>dashboard</p>" });
    expect(headers.get("cache-control")).toBe("no-cache");
    expect(headers.get("content-security-policy")).toContain("default-src 'self'");
  }
});

test("a hashed file is cached for ever, and a missing one is missing", async () => {
  const { status, headers } = await get("/assets/app-1a2b.js", {});
  expect(status).toBe(200);
  expect(headers.get("content-type")).toBe("text/javascript; charset=utf-8");
  expect(headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
  expect((await get("/assets/app-old.js", { accept: "*/*" })).status).toBe(404);
});

test("an unchanged page is not sent again", async () => {
  const etag = (await get("/")).headers.get("etag") ?? "";
  expect((await get("/", { accept: "text/html", "if-none-match": etag })).status).toBe(304);
});

test("the interface for programs is never answered with a page", async () => {
  expect((await get("/api/nothing")).status).toBe(404);
});

test("nothing outside the folder is served", async () => {
  for (const path of ["/..%2fsecret", "/%2e%2e/secret", "/link", "/assets/..%2f..%2fsecret"]) {
    expect((await get(path)).text).not.toContain("secret");
  }
});

test("without a built dashboard a page says how to build it", async () => {
  const response = await dashboardRoutes(join(folder, "missing")).request("/", {
    headers: { accept: "text/html" },
  });
  expect(response.status).toBe(503);
  expect(await response.text()).toContain("npm run build:web");
});
