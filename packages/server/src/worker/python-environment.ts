import { access, readFile, rm, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import { choosePython } from "./choose-python.ts";
import { ROLLOUT_PYTHON, causeIn } from "./environment.ts";
import { runInstaller, type InstallRequest } from "./installer.ts";

const FOLDER = ".venv";
const READY = ".osmosis-ready";

/**
 * The Python that runs a rollout: the worker's own choice, else one with the dependencies of the rollout's
 * `pyproject.toml`, which are installed once a commit, as `uv.lock` says where there is one and uv, else by pip and a
 * Python of the machine that its `requires-python` allows. Without `pyproject.toml` it is the machine's `python3`.
 *
 * @param request - its folder is that of the rollout, in the commit's files
 * @throws OsmosisError `VALIDATION` when the dependencies cannot be installed, with the beginning of what the installer said,
 * or no Python here is one that it allows.
 */
export async function pythonFor(request: InstallRequest): Promise<string> {
  const { folder, environment, onLine } = request;
  const chosen = environment[ROLLOUT_PYTHON];
  if (chosen) return chosen;
  if (!(await exists(join(folder, "pyproject.toml")))) return "python3";
  const own = join(folder, FOLDER);
  const python = join(own, "bin/python");
  const ready = join(own, READY);
  if (await exists(ready)) return python;
  await rm(own, { recursive: true, force: true });
  if ((await exists(join(folder, "uv.lock"))) && (await isOnPath("uv", environment))) {
    onLine("uv sync in the rollout's folder");
    await install(["uv", "sync", "--frozen", "--no-dev", "--quiet"], request);
  } else {
    const base = await choosePython(await readFile(join(folder, "pyproject.toml"), "utf8"), request);
    onLine(`pip install of the rollout's pyproject.toml, with ${base}`);
    await install([base, "-m", "venv", FOLDER], request);
    const quiet = ["--quiet", "--no-input", "--disable-pip-version-check"];
    await install([python, "-m", "pip", "install", ...quiet, "--editable", "."], request);
  }
  await writeFile(ready, "");
  return python;
}

async function install(command: readonly [string, ...string[]], request: InstallRequest): Promise<void> {
  const { code, said } = await runInstaller(command, request);
  if (code === 0) return;
  const errors = said.filter((line) => !/^\s*(warning|note|hint)\b/i.test(line));
  throw new OsmosisError(
    "VALIDATION",
    `The Python packages of ${await projectName(request.folder)} could not be installed (exit code ${code}): ` +
      causeIn(errors.length > 0 ? errors : said),
    {
      hint:
        "Run `python3 -m venv .venv && .venv/bin/pip install --editable .` in the rollout's folder, mend " +
        `pyproject.toml and push; or name a Python that has them in the worker's ${ROLLOUT_PYTHON}.`,
    },
  );
}

async function projectName(folder: string): Promise<string> {
  const text = await readFile(join(folder, "pyproject.toml"), "utf8").catch(() => "");
  return /^\s*name\s*=\s*["']([^"']+)["']/m.exec(text)?.[1] ?? "the rollout";
}

async function isOnPath(program: string, { PATH = "" }: Readonly<Record<string, string>>): Promise<boolean> {
  const found = await Promise.all(PATH.split(delimiter).map((folder) => exists(join(folder, program))));
  return found.includes(true);
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
