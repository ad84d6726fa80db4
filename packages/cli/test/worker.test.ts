import { once } from "node:events";
import { readFile, stat, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startCommand } from "./child.ts";
import { errorOf, lastJson } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";
import { until } from "./until.ts";

let platform: TestPlatform;
beforeAll(async () => {
  platform = await startPlatform();
}, 120_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

async function unusedUrl(): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return `http://127.0.0.1:${port}`;
}

const run = (...argv: string[]) => platform.run(["worker", ...argv, "--json"]);
const start = (...argv: string[]) =>
  startCommand(["worker", "--platform", platform.url, ...argv, "--json"], { cwd: platform.folder });

test("a worker joins with the platform's address and a token, ends at Ctrl-C, and is refused once the token is revoked", async () => {
  const made = await run("token", "create", "--name", "lab", "--save-to", "lab.token");
  expect(made).toMatchObject({ code: 0, stderr: "" });
  const file = join(platform.folder, "lab.token");
  const token = (await readFile(file, "utf8")).trim();
  expect(token).toMatch(/^osw_/);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect(made.stdout).not.toContain(token);
  expect(errorOf(await run("token", "create", "--save-to", "lab.token"))).toMatchObject({ code: "CONFLICT" });

  const data = join(platform.folder, "worker-data");
  const worker = start("--token-file", "lab.token", "--data", data, "--name", "bench", "--threads", "1");
  await until("the platform knows the worker", async () => {
    const { items } = lastJson((await run("list")).stdout) as { items: { name: string; state: string }[] };
    return items.some(({ name, state }) => name === "bench" && state === "idle");
  });
  const tokens = await run("token", "list");
  expect(tokens.stdout).not.toContain(token);
  expect(lastJson(tokens.stdout)).toMatchObject({
    items: [{ name: "lab", last_used_at: expect.any(String) }],
  });
  worker.kill("SIGINT");
  expect(await worker.ended).toMatchObject({ code: 130, signal: null });
  expect(lastJson(worker.stdout())).toMatchObject({
    status: "success",
    message: `Working for ${platform.url} as bench.`,
    resource: { worker: "bench", data },
  });

  expect(errorOf(await run("token", "revoke", "lab"))).toMatchObject({ code: "INTERACTIVE_REQUIRED" });
  expect((await run("token", "revoke", "lab", "--yes")).code).toBe(0);
  const refused = await start("--token-file", "lab.token", "--data", data).ended;
  // It never said that it works.
  expect(refused).toMatchObject({ code: 1, stdout: "" });
  expect(refused.stderr).toContain("AUTH_REQUIRED");
  expect(refused.stderr).toContain("osmosis worker token create");
  expect(refused.stderr).not.toContain(token);
});

test("a platform that does not answer is told, and nothing is said to work until it does", async () => {
  const made = await run("token", "create", "--name", "early", "--save-to", "early.token");
  expect(made.code).toBe(0);
  // A port of a server that has just closed.
  const url = await unusedUrl();
  const args = ["worker", "--token-file", "early.token", "--data", join(platform.folder, "early-data")];
  const worker = startCommand([...args, "--platform", url], { cwd: platform.folder });
  await until("the failure is told", async () => worker.stderr().includes("is tried again"));
  expect(worker.stdout()).toBe("");
  expect(worker.stderr()).toContain(`Connecting to ${url}`);
  worker.kill("SIGINT");
  expect(await worker.ended).toMatchObject({ code: 130, stdout: "" });
});

test("without a token that can be read nothing starts", async () => {
  expect(errorOf(await run())).toMatchObject({
    code: "VALIDATION",
    message: expect.stringContaining("--token-file"),
  });
  expect(errorOf(await run("--token-file", "nowhere"))).toMatchObject({ code: "VALIDATION" });
  await writeFile(join(platform.folder, "empty"), "\n");
  expect(errorOf(await run("--token-file", "empty"))).toMatchObject({ code: "VALIDATION" });
});
