import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import { z } from "zod";

/** Everything that a server is told from outside, parsed once. */
export interface ServerConfig {
  /** Keeps the embedded database, blobs, Git repositories, keys and caches. */
  dataFolder: string;
  /** A Postgres server in place of the embedded database. */
  databaseUrl: string | undefined;
  /** Address to listen on. */
  host: string;
  /** Port to listen on; 0 lets the system choose one. */
  port: number;
  /** The URL under which users reach the server, when it is not the address it listens on. No trailing slash. */
  publicUrl: string | undefined;
  /** 32 bytes in base64 from which every key is derived; by default a file in the data folder that is made once. */
  masterKey: string | undefined;
  /** How long a silent worker keeps what it holds. */
  leaseSeconds: number;
  /** The trainer of runs that choose none; without it the engine of the worker. */
  trainer?: { url: string; api_key?: string };
  /** The workspace template that new repositories are seeded from. */
  templateFolder: string;
  /** The base models that ship with the server: a folder for each. */
  modelsFolder: string;
  /** The built dashboard. It may be absent. */
  webFolder: string;
  /** The checkout whose `@osmosis/sdk` and `@osmosis/protocol` are packed into new workspaces. */
  sourceFolder: string;
  /** All that Git and npm see of the server's environment: where programs and caches are, and how to reach the network. */
  toolEnvironment: Readonly<Record<string, string>>;
}

const Environment = z.object({
  DATABASE_URL: z
    .url({ protocol: /^postgres(ql)?$/, error: "must be a URL such as postgres://user@host/database" })
    .optional(),
  OSMOSIS_PUBLIC_URL: z
    .url({ protocol: /^https?$/, error: "must be a URL such as https://osmosis.example.com" })
    .optional(),
  OSMOSIS_TRAINER_URL: z
    .url({ protocol: /^https?$/, error: "must be a URL such as https://trainer.example.com" })
    .optional(),
  OSMOSIS_TRAINER_API_KEY_FILE: z.string().optional(),
  OSMOSIS_MASTER_KEY: z.base64({ error: "must be base64, as of `openssl rand -base64 32`" }).optional(),
  OSMOSIS_LEASE_SECONDS: z.coerce
    .number({ error: "must be a number of seconds from 1 to 3600" })
    .min(1)
    .max(3600)
    .default(30),
});

/** The key is in a file, so that no list of processes or variables shows it. */
function trainerOf(variables: z.infer<typeof Environment>): Pick<ServerConfig, "trainer"> {
  const { OSMOSIS_TRAINER_URL: url, OSMOSIS_TRAINER_API_KEY_FILE: file } = variables;
  if (url === undefined) return {};
  if (file === undefined) return { trainer: { url } };
  try {
    return { trainer: { url, api_key: readFileSync(file, "utf8").trim() } };
  } catch (error) {
    throw new OsmosisError(
      "VALIDATION",
      `OSMOSIS_TRAINER_API_KEY_FILE cannot be read: ${errorMessage(error)}.`,
      {
        hint: "Correct the variable, or unset it.",
      },
    );
  }
}

const repositoryFolder = resolve(import.meta.dirname, "../../..");

/**
 * The configuration from command-line values and environment variables; the command line wins.
 *
 * A variable that is empty counts as absent.
 *
 * @throws {OsmosisError} VALIDATION that names a variable with an impossible value; never the value, which may be secret.
 */
export function readConfig(
  flags: { dataFolder: string; host?: string | undefined; port?: number | undefined },
  environment: Readonly<Record<string, string | undefined>>,
): ServerConfig {
  const variables = readVariables(environment);
  return {
    dataFolder: resolve(flags.dataFolder),
    databaseUrl: variables.DATABASE_URL,
    host: flags.host ?? "127.0.0.1",
    port: flags.port ?? 8700,
    publicUrl: variables.OSMOSIS_PUBLIC_URL?.replace(/\/+$/, ""),
    masterKey: variables.OSMOSIS_MASTER_KEY,
    leaseSeconds: variables.OSMOSIS_LEASE_SECONDS,
    ...trainerOf(variables),
    templateFolder: join(repositoryFolder, "templates/workspace"),
    modelsFolder: join(repositoryFolder, "packages/engine/models"),
    webFolder: join(repositoryFolder, "packages/web/dist"),
    sourceFolder: repositoryFolder,
    toolEnvironment: pickEnvironment(environment),
  };
}

function readVariables(
  environment: Readonly<Record<string, string | undefined>>,
): z.infer<typeof Environment> {
  const present = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ""));
  const result = Environment.safeParse(present);
  if (result.success) return result.data;
  const faults = result.error.issues.map((issue) => `${issue.path.join(".")} ${issue.message}`);
  throw new OsmosisError("VALIDATION", `The environment is not usable: ${faults.join("; ")}.`, {
    hint: "Correct the variable, or unset it.",
  });
}

const TOOL_VARIABLES =
  /^(PATH|HOME|USERPROFILE|APPDATA|LOCALAPPDATA|SystemRoot|TMPDIR|TEMP|TMP|(HTTPS?|NO)_PROXY|NODE_EXTRA_CA_CERTS|npm_config_\w+)$/i;

function pickEnvironment(environment: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const picked: Record<string, string> = {};
  for (const [name, value] of Object.entries(environment)) {
    if (value !== undefined && TOOL_VARIABLES.test(name)) picked[name] = value;
  }
  return picked;
}
