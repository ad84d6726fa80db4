import { cp, readFile, writeFile } from "node:fs/promises";
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startCommand } from "./child.ts";
import { lastJson } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";

/** `osmosis model import` as a process that is killed while it uploads, or in the moment before it registers. */

const TINY_AGENT = fileURLToPath(new URL("../../engine/models/tiny-agent", import.meta.url));

let platform: TestPlatform;
beforeAll(async () => {
  platform = await startPlatform();
}, 120_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

type Way = AsyncDisposable & { readonly url: string; readonly stuck: Promise<void>; readonly sent: string[] };

/** The way to the platform, on which the first request of the given kind gets stuck, half of its body on. */
async function startWay(gets: (request: IncomingMessage) => boolean): Promise<Way> {
  const stuck = Promise.withResolvers<void>();
  const sent: string[] = [];
  let isStuck = false;
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const { method = "GET", url = "/", headers } = request;
    sent.push(`${method} ${url.split("?")[0]}`);
    const target = httpRequest(new URL(url, platform.url), { method, headers }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on("data", (chunk: Buffer) => chunks.push(chunk));
      answer.on("end", () => {
        // Uploads are told an address, and shall come this way, too.
        const body = Buffer.concat(chunks).toString().replaceAll(platform.url, way.url);
        const { "content-length": _, "transfer-encoding": __, ...kept } = answer.headers;
        response.writeHead(answer.statusCode ?? 500, kept).end(body);
      });
    });
    for (const stream of [target, request, response]) stream.on("error", () => target.destroy());
    request.on("close", () => request.complete || target.destroy());
    if (isStuck || !gets(request)) return void request.pipe(target);
    isStuck = true;
    const half = Number(headers["content-length"] ?? 0) / 2;
    let done = 0;
    request.on("data", (chunk: Buffer) => {
      if (done < half) target.write(chunk.subarray(0, Math.max(1, half - done)));
      done += chunk.length;
      if (done >= half) stuck.resolve();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const way: Way = {
    // A server that listens on TCP has an address of this kind.
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stuck: stuck.promise,
    sent,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return way;
}

/** The model with weights of its own, so that nothing of them is known to the platform. */
async function modelFolder(name: string): Promise<string> {
  const folder = join(platform.folder, name);
  await cp(TINY_AGENT, folder, { recursive: true });
  const weights = await readFile(join(folder, "model.safetensors"));
  weights.writeUInt8(name.length, weights.length - 1);
  await writeFile(join(folder, "model.safetensors"), weights);
  return folder;
}

async function baseModels(): Promise<string[]> {
  const clone = join(platform.folder, "clone");
  await platform.run(["workspace", "create", "killed", "--clone", clone, "--json"]);
  const listed = await platform.run(["model", "list", "--type", "base", "--json"], { cwd: clone });
  // Written by the command under test.
  const { base_models } = lastJson(listed.stdout) as { base_models: { items: { model_name: string }[] } };
  return base_models.items.map((model) => model.model_name);
}

test.each([
  [
    "in the middle of the weights",
    "killed/upload",
    (request: IncomingMessage) =>
      request.method === "PUT" && Number(request.headers["content-length"]) > 1_000_000,
  ],
  [
    "while it registers the model",
    "killed/register",
    (request: IncomingMessage) => request.method === "POST" && request.url?.endsWith("/models/base") === true,
  ],
] as const)(
  "an import that was killed %s has registered nothing, and a second one completes",
  async (_, name, gets) => {
    const folder = await modelFolder(name.replace("/", "-"));
    await using way = await startWay(gets);
    const login = await platform.run(
      ["auth", "login", "--local", "--data", join(platform.folder, "data"), "--json"],
      {
        env: { OSMOSIS_PLATFORM_URL: way.url },
      },
    );
    expect(login.code).toBe(0);
    const argv = ["model", "import", folder, "--name", name, "--json"];
    const env = { ...platform.env, OSMOSIS_PLATFORM_URL: way.url };
    const killed = startCommand(argv, { cwd: platform.folder, env });
    await Promise.race([
      way.stuck,
      killed.ended.then(({ stderr, stdout }) => {
        throw new Error(`it ended by itself: ${stdout}${stderr}\n${way.sent.join("\n")}`);
      }),
    ]);
    killed.kill("SIGKILL");
    expect((await killed.ended).signal).toBe("SIGKILL");
    expect(await baseModels()).not.toContain(name);

    const again = await startCommand(argv, { cwd: platform.folder, env }).ended;
    expect(again).toMatchObject({ code: 0, stderr: "" });
    expect(lastJson(again.stdout)).toMatchObject({ status: "success", resource: { model_name: name } });
    expect(await baseModels()).toContain(name);
  },
  120_000,
);
