import { readdir } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import { ROLLOUT_PYTHON } from "./environment.ts";
import { runInstaller, type InstallRequest } from "./installer.ts";

/**
 * The Python that a rollout's packages are installed with: `python3`, or, where that is none that `requires-python`
 * allows, the newest `python3.N` on the PATH that is.
 *
 * @param project - the text of the rollout's `pyproject.toml`
 * @throws OsmosisError `VALIDATION` when no Python here is allowed.
 */
export async function choosePython(project: string, request: InstallRequest): Promise<string> {
  const wanted = /^\s*requires-python\s*=\s*["']([^"']+)["']/m.exec(project)?.[1];
  if (wanted === undefined) return "python3";
  const first = await versionOf("python3", request);
  if (first !== undefined && allowsPython(wanted, first)) return "python3";
  for (const python of await pythonsOnPath(request.environment)) {
    const version = await versionOf(python, request);
    if (version !== undefined && allowsPython(wanted, version)) return python;
  }
  const where = request.worker === undefined ? "this machine" : `worker ${request.worker}`;
  throw new OsmosisError(
    "VALIDATION",
    `The rollout's pyproject.toml requires Python ${wanted}, and ${where} has ` +
      `${first === undefined ? "no python3 that runs" : `Python ${first}`} and no other that is allowed.`,
    {
      hint:
        "Put such a Python, with venv, on the PATH of the worker (as python3, or as python3.N), or name one that has " +
        `the packages in its ${ROLLOUT_PYTHON}; then start the worker again and submit the run again.`,
    },
  );
}

/**
 * Whether a version specifier allows a Python. A clause that is not understood is left to pip to judge.
 *
 * @param specifier - as in `requires-python`: `>=3.12,<4`
 * @param version - `3.12.1`
 */
export function allowsPython(specifier: string, version: string): boolean {
  const found = version.split(".").map(Number);
  return specifier.split(",").every((clause) => {
    const [, operator, numbers, isPrefix] =
      /^\s*(~=|[<>=!]=|[<>])\s*(\d+(?:\.\d+)*)(\.\*)?\s*$/.exec(clause) ?? [];
    if (operator === undefined || numbers === undefined) return true;
    const asked = numbers.split(".").map(Number);
    const order = compare(found, asked);
    const isWithin = compare(found.slice(0, asked.length), asked) === 0;
    switch (operator) {
      case ">=":
        return order >= 0;
      case ">":
        return order > 0;
      case "<=":
        return order <= 0;
      case "<":
        return order < 0;
      case "~=": {
        const series = asked.slice(0, -1);
        return order >= 0 && compare(found.slice(0, series.length), series) === 0;
      }
      case "!=":
        return isPrefix === undefined ? order !== 0 : !isWithin;
      default:
        return isPrefix === undefined ? order === 0 : isWithin;
    }
  });
}

function compare(one: readonly number[], other: readonly number[]): number {
  for (let i = 0; i < Math.max(one.length, other.length); i++) {
    const difference = (one[i] ?? 0) - (other[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** Every `python3.N` on the PATH, the newest first. */
async function pythonsOnPath({ PATH = "" }: Readonly<Record<string, string>>): Promise<string[]> {
  const found = await Promise.all(
    PATH.split(delimiter).map(async (folder) => {
      const names = await readdir(folder).catch(() => []);
      return names.filter((name) => /^python3\.\d+$/.test(name)).map((name) => join(folder, name));
    }),
  );
  const minor = (path: string): number => Number(path.slice(path.lastIndexOf(".") + 1));
  return found.flat().toSorted((a, b) => minor(b) - minor(a));
}

/** Undefined where it does not run, as a launcher without the version behind it, or cannot make an environment. */
async function versionOf(python: string, request: InstallRequest): Promise<string | undefined> {
  const program = "import ensurepip, sys; print('.'.join(map(str, sys.version_info[:3])))";
  const { code, said } = await runInstaller([python, "-c", program], { ...request, onLine: () => {} });
  const version = said.find((line) => /^\d+\.\d+\.\d+$/.test(line));
  return code === 0 ? version : undefined;
}
