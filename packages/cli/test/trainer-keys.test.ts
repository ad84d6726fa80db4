import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { errorOf, lastJson } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";

let platform: TestPlatform;
beforeAll(async () => {
  platform = await startPlatform();
}, 120_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

const key = (...argv: string[]) => platform.run(["trainer", "key", ...argv, "--json"]);

const statusAt = async (path: string, headers: Record<string, string>) =>
  (await fetch(new URL(path, platform.url), { headers })).status;

test("a key of the trainer is shown once, opens the trainer and nothing else, and ends when it is revoked", async () => {
  const made = await key("create", "--name", "notebook", "--days", "30");
  expect(made).toMatchObject({ code: 0, stderr: "" });
  const { resource } = z
    .object({ resource: z.object({ api_key: z.string(), base_url: z.string(), expires_at: z.string() }) })
    .parse(lastJson(made.stdout));
  const { api_key: apiKey, base_url: baseUrl, expires_at: expiresAt } = resource;
  expect(apiKey).toMatch(/^tml-osm_/);
  expect(baseUrl).toBe(platform.url);
  expect((Date.parse(expiresAt) - Date.now()) / 86_400_000).toBeCloseTo(30, 1);

  const opens = () => statusAt("/api/v1/get_server_capabilities", { "x-api-key": apiKey });
  expect(await opens()).toBe(200);
  const asBearer = { authorization: `Bearer ${apiKey.slice("tml-".length)}` };
  expect(await statusAt("/api/cli/verify", asBearer)).toBe(401);
  expect(await statusAt("/api/tokens", asBearer)).toBe(401);

  const listed = await key("list");
  expect(lastJson(listed.stdout)).toMatchObject({
    items: [{ name: "notebook", prefix: apiKey.slice(0, 14) }],
  });
  expect(listed.stdout).not.toContain(apiKey);

  expect(errorOf(await key("revoke", "notebook"))).toMatchObject({ code: "INTERACTIVE_REQUIRED" });
  expect((await key("revoke", "notebook", "--yes")).code).toBe(0);
  expect(await opens()).toBe(401);
  expect(lastJson((await key("list")).stdout)).toMatchObject({ items: [] });
  expect(errorOf(await key("revoke", "notebook", "--yes"))).toMatchObject({ code: "NOT_FOUND" });
});

test("of two keys with one name, the id says which", async () => {
  const ids = [];
  for (let index = 0; index < 2; index++) {
    const { resource } = z
      .object({ resource: z.object({ token_id: z.string() }) })
      .parse(lastJson((await key("create", "--name", "twin")).stdout));
    ids.push(resource.token_id);
  }
  expect(errorOf(await key("revoke", "twin", "--yes"))).toMatchObject({ code: "CONFLICT" });
  expect((await key("revoke", ids[0] ?? "", "--yes")).code).toBe(0);
  expect((await key("revoke", "twin", "--yes")).code).toBe(0);
});
