import { execFile, execFileSync } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { promisify } from "node:util";
import { authRoutes, createClient, workersRoutes } from "@osmosis/protocol";
import { describe, expect, test } from "vitest";
import { PROGRAM, startCommand, type RunningCommand } from "./child.ts";
import { temporaryFolder } from "./folder.ts";
import { errorOf, lastJson } from "./io.ts";
import { until } from "./until.ts";

const run = promisify(execFile);

/** Process ids whose command line names the folder, by the file that they run; workers by their folder's name. */
async function processesOn(folder: string): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  const { stdout } = await run("ps", ["-eo", "pid=,args="], { maxBuffer: 16 * 1024 * 1024 });
  for (const line of stdout.split("\n")) {
    const [, below = ""] = line.split(`--data ${folder}`);
    if (below === "") continue;
    const pid = Number.parseInt(line, 10);
    if (line.includes("server/src/main.ts")) found.set("server", pid);
    else if (line.includes("worker/main.ts")) found.set(/^\/(\S+)/.exec(below)?.[1] ?? "", pid);
  }
  return found;
}

async function untilListening(up: RunningCommand): Promise<string> {
  const line = await until("the platform listens", () => up.stdout().includes("\n") && up.stdout(), 90_000);
  // Written by the command under test.
  return (JSON.parse(line.split("\n")[0] ?? "") as { resource: { url: string } }).resource.url;
}

const isHealthy = async (url: string): Promise<boolean> =>
  await fetch(`${url}/api/health`).then(
    (response) => response.ok,
    () => false,
  );

describe("osmosis up", () => {
  test(
    "a killed server comes back on its port, and Ctrl-C ends both processes",
    { timeout: 180_000 },
    async () => {
      await using folder = await temporaryFolder();
      const data = join(folder.path, "data");
      const up = startCommand(["up", "--data", data, "--port", "0", "--json"], { cwd: folder.path });
      const url = await untilListening(up);
      const before = await until("both processes run", async () => {
        const processes = await processesOn(data);
        return processes.has("worker") && processes;
      });
      process.kill(before.get("server") ?? 0, "SIGKILL");
      await until(
        "the server is back",
        async () => {
          const server = (await processesOn(data)).get("server");
          return server !== undefined && server !== before.get("server") && (await isHealthy(url));
        },
        90_000,
      );
      up.kill("SIGINT");
      expect(await up.ended).toMatchObject({ code: 130 });
      expect(await processesOn(data)).toEqual(new Map());
      await expect(readFile(join(data, "running.json"))).rejects.toThrow("ENOENT");
    },
  );

  test("kill -9 of up takes its processes with it", { timeout: 180_000 }, async () => {
    await using folder = await temporaryFolder();
    const data = join(folder.path, "data");
    const up = startCommand(["up", "--data", data, "--port", "0", "--json"], { cwd: folder.path });
    await untilListening(up);
    up.kill("SIGKILL");
    await up.ended;
    await until("nothing is left", async () => (await processesOn(data)).size === 0, 60_000);
  });

  test(
    "brings as many workers as it is told, starts each again that is killed, and ends them all",
    { timeout: 180_000 },
    async () => {
      await using folder = await temporaryFolder();
      const data = join(folder.path, "data");
      const args = ["up", "--data", data, "--port", "0", "--json", "--workers", "3"];
      const up = startCommand(args, { cwd: folder.path });
      const url = await untilListening(up);
      const names = ["worker", "worker-2", "worker-3"];
      const before = await until("three workers run", async () => {
        const processes = await processesOn(data);
        return names.every((name) => processes.has(name)) && processes;
      });
      const { token } = await createClient({ baseUrl: url, fetch }).call(authRoutes.localToken, {
        body: { secret: (await readFile(join(data, "local-secret"), "utf8")).trim(), name: "test" },
      });
      const client = createClient({
        baseUrl: url,
        fetch,
        headers: () => ({ authorization: `Bearer ${token}` }),
      });
      // Each under a name of its own: two of one name would take each other's runs.
      const known = () => client.call(workersRoutes.list, {}).then(({ workers }) => workers.length);
      await until("the platform knows three", async () => (await known()) === 3, 60_000);
      process.kill(before.get("worker-2") ?? 0, "SIGKILL");
      await until(
        "it is back",
        async () => {
          const again = (await processesOn(data)).get("worker-2");
          return again !== undefined && again !== before.get("worker-2");
        },
        60_000,
      );
      expect(up.stderr()).toContain("The worker-2 ended (signal SIGKILL)");
      up.kill("SIGINT");
      expect(await up.ended).toMatchObject({ code: 130 });
      expect(await processesOn(data)).toEqual(new Map());
    },
  );

  test("a taken port is named with its remedy", async () => {
    await using folder = await temporaryFolder();
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const address = other.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const up = startCommand(["up", "--data", join(folder.path, "data"), "--port", String(port), "--json"], {
      cwd: folder.path,
    });
    const ran = await up.ended;
    other.close();
    expect(ran).toMatchObject({ code: 1, stdout: "" });
    expect(errorOf(ran)).toMatchObject({ code: "CONFLICT", details: { port } });
    expect(errorOf(ran).message).toContain(String(port));
    expect(errorOf(ran).hint).toContain("--port");
  });

  test("a data folder that cannot be one is named", async () => {
    await using folder = await temporaryFolder();
    await writeFile(join(folder.path, "file"), "");
    const data = join(folder.path, "file/data");
    const ran = await startCommand(["up", "--data", data, "--port", "0", "--json"], { cwd: folder.path })
      .ended;
    expect(ran).toMatchObject({ code: 1, stdout: "" });
    expect(errorOf(ran)).toMatchObject({ code: "STORAGE" });
    expect(errorOf(ran).message).toContain(data);
    expect(errorOf(ran).hint).toContain("--data");
  });

  // A file system of one's own needs Linux's user namespaces, which not every machine allows.
  const canMount = mayMount();
  test.skipIf(!canMount).each([
    ["a read-only data folder", "ro", /read-only/i],
    ["a full data folder", "size=16k", /disk is full/i],
  ])("%s is named with its remedy", async (_, options, remedy) => {
    await using folder = await temporaryFolder();
    const data = join(folder.path, "data");
    await mkdir(data);
    const command = `mount -t tmpfs -o ${options} none '${data}' && exec '${process.execPath}' '${PROGRAM}' up --data '${data}' --port 0 --json`;
    const failed: unknown = await run("unshare", ["-rm", "sh", "-c", command]).catch(
      (error: unknown) => error,
    );
    expect(failed).toMatchObject({ code: 1 });
    // `execFile` puts both streams on its error.
    const { stderr } = failed as { stderr: string };
    expect(lastJson(stderr)).toMatchObject({
      error: { code: "STORAGE", hint: expect.stringMatching(remedy) },
    });
  });
});

function mayMount(): boolean {
  try {
    execFileSync("unshare", ["-rm", "mount", "-t", "tmpfs", "none", "/mnt"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
