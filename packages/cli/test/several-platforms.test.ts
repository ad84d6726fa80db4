import { existsSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openCredentialStore } from "../src/credentials/store.ts";
import { errorOf, lastJson } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";

/** Nothing listens there. */
const GONE = "http://127.0.0.1:9";

let platform: TestPlatform;
let workspace = "";

beforeAll(async () => {
  platform = await startPlatform();
  workspace = join(platform.folder, "demo");
  const created = await platform.run(["workspace", "create", "demo", "--clone", workspace]);
  if (created.code !== 0) throw new Error(created.stderr);
  await signInAt(GONE, Date.now() + 60_000);
}, 120_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

/** A login besides the one at the platform, made at that time. */
async function signInAt(platformUrl: string, time: number): Promise<void> {
  const folder = join(platform.folder, "config/osmosis");
  const store = openCredentialStore({ folder, keyring: undefined, now: () => time });
  const user = { id: "u1", email: "ada@example.com" };
  await store.save({ platformUrl, token: "osm_gone", tokenId: undefined, user, expiresAt: undefined });
}

/** Runs a command that nothing but the folder and the logins tell where to go. */
const run = (cwd: string, ...argv: string[]) =>
  platform.run([...argv, "--json"], { cwd, env: { OSMOSIS_PLATFORM_URL: "" } });

test.each([
  ["worker", "list"],
  ["worker", "token", "list"],
  ["workspace", "list"],
  ["auth", "whoami"],
])(
  "in a workspace `%s %s` talks to the workspace's platform, whatever the newest login is",
  async (...argv) => {
    expect(await run(workspace, ...argv)).toMatchObject({ code: 0, stderr: "" });
  },
);

test("outside of workspaces commands talk to the platform of the newest login", async () => {
  const gone = errorOf(await run(platform.folder, "auth", "whoami"));
  expect(gone).toMatchObject({ code: "NETWORK", message: expect.stringContaining(GONE) });
  await signInAt(GONE, Date.now() - 3_600_000);
  const answered = await run(platform.folder, "auth", "whoami");
  expect(lastJson(answered.stdout)).toMatchObject({ data: { platform_url: platform.url } });
});

test("a worker token that could not be made leaves no file in the way of the next attempt", async () => {
  const create = ["worker", "token", "create", "--save-to", "lab.token"];
  const failed = await run(platform.folder, ...create, "--platform", GONE);
  expect(errorOf(failed)).toMatchObject({ code: "NETWORK" });
  expect(existsSync(join(platform.folder, "lab.token"))).toBe(false);
  expect(await run(platform.folder, ...create, "--platform", platform.url)).toMatchObject({ code: 0 });
});

test("a login says when commands in the folder go on elsewhere", async () => {
  const args = ["auth", "login", "--local", "--data", join(platform.folder, "data")];
  const told = await platform.run([...args, "--platform", platform.url], {
    cwd: platform.folder,
    env: { OSMOSIS_PLATFORM_URL: GONE },
  });
  expect(told.stderr).toContain(`Commands here go on talking to ${GONE}, which OSMOSIS_PLATFORM_URL names`);
  const plain = await run(platform.folder, ...args, "--platform", platform.url);
  expect(plain).toMatchObject({ code: 0, stderr: "" });
});
