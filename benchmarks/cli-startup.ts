/**
 * How long the `osmosis` command takes, as whole processes, from start to exit: `--version`, `--help`, and a command
 * that asks the platform (`auth whoami`). The platform is a real one on an empty data folder, without a worker.
 *
 *     node benchmarks/cli-startup.ts [runs]
 *
 * The first run of each command fills the compile cache and is not counted.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const runs = Number(process.argv[2] ?? 15);
const program = resolve(import.meta.dirname, "../packages/cli/bin/osmosis.js");
const folder = await mkdtemp(join(tmpdir(), "osmosis-benchmark-"));
const data = join(folder, "data");
const env = { ...process.env, XDG_CONFIG_HOME: folder, OSMOSIS_CREDENTIAL_STORE: "file" };

const platform = spawn(
  process.execPath,
  [program, "up", "--data", data, "--port", "0", "--no-worker", "--json"],
  {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  },
);
try {
  const [line] = await once(platform.stdout.setEncoding("utf8"), "data");
  const { url } = JSON.parse(String(line)).resource;
  const target = ["--platform", url];
  osmosis("auth", "login", "--local", "--data", data, ...target);
  measure("--version", 150, "--version");
  measure("--help", undefined, "--help");
  measure("auth whoami", 300, "auth", "whoami", ...target);
} finally {
  platform.kill("SIGTERM");
  await once(platform, "exit");
  await rm(folder, { recursive: true, force: true });
}

function measure(name: string, goalMs: number | undefined, ...args: string[]): void {
  osmosis(...args);
  const times = Array.from({ length: runs }, () => osmosis(...args)).sort((a, b) => a - b);
  const [best = 0] = times;
  const median = times[Math.floor(times.length / 2)] ?? 0;
  const goal = goalMs === undefined ? "" : `  (aim: under ${goalMs} ms)`;
  console.log(
    `${name.padEnd(12)} median ${median.toFixed(0)} ms, best ${best.toFixed(0)} ms of ${runs}${goal}`,
  );
}

/** Milliseconds that one call took. */
function osmosis(...args: string[]): number {
  const start = performance.now();
  const { status, stderr } = spawnSync(process.execPath, [program, ...args], {
    env,
    encoding: "utf8",
    cwd: folder,
  });
  const took = performance.now() - start;
  if (status !== 0) throw new Error(`osmosis ${args.join(" ")} failed: ${stderr}`);
  return took;
}
