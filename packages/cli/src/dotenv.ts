import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { parseEnv } from "node:util";
import { OsmosisError } from "@osmosis/protocol";
import { normalisePlatformUrl } from "./platform/url.ts";

type Environment = Readonly<Record<string, string | undefined>>;

const AUTH_NAMES = ["OSMOSIS_TOKEN", "OSMOSIS_TOKEN_PLATFORM_URL", "OSMOSIS_PLATFORM_URL"] as const;

/**
 * The environment of the process with the variables of a dotenv file beneath it: the file that `--env-file` or
 * `OSMOSIS_ENV_FILE` names, else the nearest `.env` upwards from the folder. Non-empty process variables win.
 *
 * @throws OsmosisError `NOT_FOUND` for a named file that is not there, `CONFLICT` when the process and the file
 * disagree about who signs in where: neither must win silently.
 */
export function withDotenv(options: {
  env: Environment;
  cwd: string;
  file: string | undefined;
  platformFlag: string | undefined;
}): Environment {
  const { env, cwd } = options;
  const named = options.file ?? env["OSMOSIS_ENV_FILE"];
  const path = named ? resolve(cwd, named) : nearest(cwd);
  if (path === undefined) return env;
  if (!existsSync(path)) {
    throw new OsmosisError("NOT_FOUND", `The environment file ${path} does not exist.`, {
      hint: "Give an existing file to --env-file or OSMOSIS_ENV_FILE.",
    });
  }
  const fromFile = parseEnv(readFileSync(path, "utf8"));
  for (const name of AUTH_NAMES) {
    if (name === "OSMOSIS_PLATFORM_URL" && options.platformFlag !== undefined) continue;
    const ours = env[name];
    const theirs = fromFile[name];
    if (ours && theirs && comparable(name, ours) !== comparable(name, theirs)) {
      throw new OsmosisError("CONFLICT", `${name} is set in the environment and, differently, in ${path}.`, {
        hint: `Unset one of the two: \`unset ${name}\`, or remove the line from the file.`,
      });
    }
  }
  const merged: Record<string, string | undefined> = { ...fromFile };
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && (value !== "" || fromFile[name] === undefined)) merged[name] = value;
  }
  return merged;
}

function comparable(name: string, value: string): string {
  return name === "OSMOSIS_TOKEN" ? value : normalisePlatformUrl(value);
}

function nearest(folder: string): string | undefined {
  for (let at = folder; ; at = dirname(at)) {
    const candidate = join(at, ".env");
    if (statSync(candidate, { throwIfNoEntry: false })?.isFile() === true) return candidate;
    if (dirname(at) === at) return undefined;
  }
}
