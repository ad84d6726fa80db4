import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";

const Event = z.discriminatedUnion("event", [
  z.object({ event: z.literal("listening"), url: z.string(), port: z.int(), sign_in_url: z.string() }),
  z.object({
    event: z.literal("failed"),
    code: z.string(),
    message: z.string(),
    hint: z.string().optional(),
  }),
]);

describe("the server process", { timeout: 120_000 }, () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "osmosis-main-"));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test("listens, says where, keeps its secrets to its user, and stops cleanly when told", async () => {
    const data = join(folder, "data");
    const server = start("--data", data, "--port", "0");
    const event = await server.event();
    if (event.event !== "listening") throw new Error(event.message);
    expect(await (await fetch(`${event.url}/api/version`)).json()).toEqual({ version: "0.1.0" });
    for (const name of ["master-key", "local-secret", "worker-secret"]) {
      expect(((await stat(join(data, name))).mode & 0o777).toString(8)).toBe("600");
    }
    const second = start("--data", data, "--port", "0");
    expect(await second.event()).toMatchObject({ event: "failed", code: "CONFLICT" });
    expect(await second.exitCode()).toBe(1);
    server.child.kill("SIGTERM");
    expect(await server.exitCode()).toBe(0);
    await expect(stat(join(data, "server.lock"))).rejects.toMatchObject({ code: "ENOENT" });
  });

  test("ends when the one who supervises it is gone", async () => {
    const data = join(folder, "supervised");
    const server = start("--data", data, "--port", "0", "--supervised");
    expect(await server.event()).toMatchObject({ event: "listening" });
    // Nobody reads what it prints any more, either.
    server.child.stdout?.destroy();
    server.child.stderr?.destroy();
    server.child.stdin?.end();
    expect(await server.exitCode()).toBe(0);
    await expect(stat(join(data, "server.lock"))).rejects.toMatchObject({ code: "ENOENT" });
  });

  test("a taken port is said with the remedy, and touches no data", async () => {
    const holder = createServer().listen(0, "127.0.0.1");
    await once(holder, "listening");
    const address = holder.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const server = start("--data", join(folder, "untouched"), "--port", String(port));
    expect(await server.event()).toEqual({
      event: "failed",
      code: "CONFLICT",
      message: `Port ${port} of 127.0.0.1 is taken by another program.`,
      hint: expect.stringContaining("--port"),
    });
    expect(await server.exitCode()).toBe(1);
    await expect(stat(join(folder, "untouched"))).rejects.toMatchObject({ code: "ENOENT" });
    holder.close();
  });

  test("a data folder that cannot be made is a STORAGE error", async () => {
    await writeFile(join(folder, "file"), "");
    const server = start("--data", join(folder, "file/data"), "--port", "0");
    expect(await server.event()).toMatchObject({
      event: "failed",
      code: "STORAGE",
      message: expect.stringContaining(join(folder, "file/data")),
    });
    expect(await server.exitCode()).toBe(1);
  });
});

interface Started {
  child: ChildProcess;
  /** The line that says how starting went. */
  event(): Promise<z.infer<typeof Event>>;
  exitCode(): Promise<number | null>;
}

function start(...args: string[]): Started {
  const { PATH, HOME } = process.env;
  const child = spawn(process.execPath, [join(import.meta.dirname, "main.ts"), "--json", ...args], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { PATH, HOME },
  });
  child.stderr.resume();
  const exited = once(child, "exit");
  return {
    child,
    async event() {
      for await (const line of createInterface(child.stdout)) return Event.parse(JSON.parse(line));
      throw new Error("The server said nothing.");
    },
    async exitCode() {
      await exited;
      return child.exitCode;
    },
  };
}
