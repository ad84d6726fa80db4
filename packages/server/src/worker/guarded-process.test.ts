import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startGuarded } from "./guarded-process.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "osmosis-guard-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 400 && !condition(); i++) await sleep(25);
  expect(condition()).toBe(true);
}

/** Prints its own pid and a child's, ignores SIGTERM, and stays. */
const STUBBORN = `
  const { spawn } = require("node:child_process");
  const child = spawn(process.execPath, ["-e", "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000)"]);
  process.on("SIGTERM", () => {});
  console.log(process.pid + " " + child.pid);
  setInterval(() => {}, 1000);
`;

test("a command's lines and exit code are reported", async () => {
  const lines: string[] = [];
  await using child = startGuarded(
    [process.execPath, "-e", "console.log('one'); console.error('two'); process.exit(7)"],
    {
      folder,
      environment: {},
      onLine: (line, stream) => lines.push(`${stream} ${line}`),
    },
  );
  expect(await child.ended).toEqual({ code: 7 });
  expect(lines.sort()).toEqual(["stderr two", "stdout one"]);
});

test("a command that does not exist ends with 127 and says so", async () => {
  const lines: string[] = [];
  await using child = startGuarded(["/no/such/command"], {
    folder,
    environment: {},
    onLine: (line) => lines.push(line),
  });
  expect(await child.ended).toEqual({ code: 127 });
  expect(lines.join(" ")).toContain("/no/such/command");
});

test("a command sees the environment that it is given, and nothing else of ours", async () => {
  const lines: string[] = [];
  await using child = startGuarded(
    [process.execPath, "-e", "console.log(Object.keys(process.env).sort().join())"],
    {
      folder,
      environment: { ONLY: "this" },
      onLine: (line) => lines.push(line),
    },
  );
  await child.ended;
  expect(lines).toEqual(["ONLY,_OSMOSIS_GUARD_GRACE_MS,_OSMOSIS_GUARD_ID"]);
});

test("stopping ends a process group that ignores SIGTERM", async () => {
  const pids: number[] = [];
  const child = startGuarded([process.execPath, "-e", STUBBORN], {
    folder,
    environment: {},
    graceMs: 200,
    onLine: (line) => pids.push(...line.split(" ").map(Number)),
  });
  await until(() => pids.length === 2);
  await child.stop();
  await until(() => !pids.some(alive));
});

test.each(["the parent", "the parent's whole group"])(
  "SIGKILL to %s leaves no process behind",
  async (whom) => {
    const script = join(folder, "parent.ts");
    await writeFile(
      script,
      `import { startGuarded } from ${JSON.stringify(join(import.meta.dirname, "guarded-process.ts"))};
     startGuarded([process.execPath, "-e", ${JSON.stringify(STUBBORN)}], {
       folder: ".", environment: {}, graceMs: 200, onLine: (line) => console.log(line),
     });
     setInterval(() => {}, 1000);`,
    );
    const parent = spawn(process.execPath, [script], {
      stdio: ["ignore", "pipe", "inherit"],
      detached: true,
    });
    const pids: number[] = [];
    parent.stdout.on("data", (chunk: Buffer) => pids.push(...chunk.toString().trim().split(" ").map(Number)));
    await until(() => pids.length === 2);
    const { pid = 0 } = parent;
    process.kill(whom === "the parent" ? pid : -pid, "SIGKILL");
    await until(() => !pids.some(alive));
  },
);

/** Starts a child in a group of its own, which keeps our stdout open, prints its pid, and ends before it. */
const LEAVES_A_STRAY = `
  const { spawn } = require("node:child_process");
  const options = { detached: true, stdio: ["ignore", "inherit", "inherit"] };
  const stray = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], options);
  stray.unref();
  console.log(stray.pid);
`;

// Only Linux tells the environments of processes.
test.runIf(process.platform === "linux")(
  "a child that left the process group ends with the command, and holds nobody up",
  async () => {
    const pids: number[] = [];
    await using child = startGuarded([process.execPath, "-e", LEAVES_A_STRAY], {
      folder,
      environment: {},
      onLine: (line) => pids.push(Number(line)),
    });
    expect(await child.ended).toEqual({ code: 0 });
    expect(pids).toHaveLength(1);
    await until(() => !pids.some(alive));
  },
);

test("a line of many megabytes is cut while it comes, with what was left out, and the next one is whole", async () => {
  const lines: string[] = [];
  const script = `
    const part = "x".repeat(1_000_000);
    for (let n = 0; n < 40; n++) process.stdout.write(part);
    process.stdout.write("\\nn\u00e4chste\\r\\nredrawn\\rdrawn\\nunfinished");
  `;
  await using child = startGuarded([process.execPath, "-e", script], {
    folder,
    environment: {},
    onLine: (line) => lines.push(line),
  });
  await child.ended;
  expect(lines.map((line) => line.length)).toEqual([65_536 + 29, 7, 7, 5, 10]);
  expect(lines[0]?.endsWith("x … (39934464 more characters)")).toBe(true);
  expect(lines.slice(1)).toEqual(["n\u00e4chste", "redrawn", "drawn", "unfinished"]);
});
