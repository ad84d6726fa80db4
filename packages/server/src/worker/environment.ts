import { access, mkdir, readFile, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { OsmosisError } from "@osmosis/protocol";
import { extract } from "tar";
import { runInstaller } from "./installer.ts";

/** A worker's variable: a Python that has what its rollouts need already, so that nothing is installed. */
export const ROLLOUT_PYTHON = "OSMOSIS_ROLLOUT_PYTHON";

/** Variables of this machine that children may see. A rollout gets others by name, from its configuration. */
const PASSED_ON = [
  "PATH",
  "HOME",
  "LANG",
  "LC_ALL",
  "TZ",
  "TMPDIR",
  "NODE_EXTRA_CA_CERTS",
  "HTTPS_PROXY",
  "NO_PROXY",
  ROLLOUT_PYTHON,
];

/** What a child sees of this worker's environment. Installers see nothing else: what they make, other runs use, too. */
export function childEnvironment(own: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const name of PASSED_ON) {
    const value = own[name];
    if (value !== undefined) environment[name] = value;
  }
  return environment;
}

const READY = ".osmosis-ready";
const KEPT_ENVIRONMENTS = 10;

export type EnvironmentRequest = {
  /** Environments are kept here, one folder a commit. */
  readonly root: string;
  readonly commit: string;
  /** Hands the commit's files to `use` as a tar archive; again from the beginning when the connection broke. */
  readonly source: (use: (archive: Readable) => Promise<void>, signal: AbortSignal) => Promise<void>;
  readonly environment: Readonly<Record<string, string>>;
  readonly onLine: (line: string) => void;
  readonly signal: AbortSignal;
};

/**
 * The commit's files with their dependencies installed; made once a commit, and only ever seen complete.
 *
 * @returns the folder
 * @throws OsmosisError `VALIDATION` when the dependencies cannot be installed, with the beginning of what the installer said.
 */
export async function prepareEnvironment(request: EnvironmentRequest): Promise<string> {
  const folder = join(request.root, request.commit);
  const ready = join(folder, READY);
  if (await exists(ready)) {
    // Its time is the last use.
    await writeFile(ready, "");
    return folder;
  }
  await prune(request.root);
  const building = `${folder}.${process.pid}.building`;
  try {
    await request.source(async (archive) => {
      await rm(building, { recursive: true, force: true });
      await mkdir(building, { recursive: true });
      await pipeline(archive, extract({ cwd: building, strict: true }), { signal: request.signal });
    }, request.signal);
    await installPackages(building, request);
    await writeFile(join(building, READY), "");
    await rm(folder, { recursive: true, force: true });
    await rename(building, folder);
  } catch (error) {
    await rm(building, { recursive: true, force: true });
    throw error;
  }
  return folder;
}

/** Deletes what a killed worker left half-made, and all but the environments that were used last. */
async function prune(root: string): Promise<void> {
  const names = await readdir(root).catch(() => []);
  const used: { name: string; at: number }[] = [];
  for (const name of names) {
    const builder = /\.(\d+)\.building$/.exec(name)?.[1];
    if (builder !== undefined && !isAlive(Number(builder))) {
      await rm(join(root, name), { recursive: true, force: true });
    }
    const ready = await stat(join(root, name, READY)).catch(() => undefined);
    if (builder === undefined && ready !== undefined) used.push({ name, at: ready.mtimeMs });
  }
  for (const { name } of used.toSorted((a, b) => b.at - a.at).slice(KEPT_ENVIRONMENTS - 1)) {
    await rm(join(root, name), { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function installPackages(folder: string, request: EnvironmentRequest): Promise<void> {
  if (!(await exists(join(folder, "package.json")))) return;
  const locked = await exists(join(folder, "package-lock.json"));
  const quiet = ["--omit=dev", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"];
  request.onLine(`npm ${locked ? "ci" : "install"} in the commit's files`);
  const { code, said } = await runInstaller(["npm", locked ? "ci" : "install", ...quiet], {
    ...request,
    folder,
  });
  if (code !== 0) {
    const name = await packageName(folder);
    throw new OsmosisError(
      "VALIDATION",
      `npm could not install the dependencies of ${name} (exit code ${code}): ${causeIn(said)}`,
      { hint: "Run `npm install` in a fresh clone of the workspace, commit package-lock.json and push." },
    );
  }
}

/** npm begins with the cause; what follows are its manual and where its log is. */
export function causeIn(lines: readonly string[]): string {
  const told = lines
    .map((line) => line.replace(/^npm (error|ERR!) ?/, "").trim())
    .filter((line) => line !== "");
  const text = told.slice(0, 6).join(" | ");
  return text === "" ? "it printed nothing." : text;
}

async function packageName(folder: string): Promise<string> {
  try {
    const manifest = JSON.parse(await readFile(join(folder, "package.json"), "utf8")) as { name?: unknown };
    return typeof manifest.name === "string" ? manifest.name : "the workspace";
  } catch {
    return "the workspace";
  }
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
