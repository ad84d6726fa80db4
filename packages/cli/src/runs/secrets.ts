import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { errorMessage, OsmosisError, type Client } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { storedSecrets } from "../secret/secret.ts";

/** Where each required secret comes from, and the values that travel with the run. */
export type ResolvedSecrets = {
  readonly provided: Readonly<Record<string, string>>;
  /** For the confirmation: `OPENAI_API_KEY (stored)`. */
  readonly sources: readonly string[];
};

/**
 * Finds a value for each required name: the secrets file, then a non-empty environment variable, then what the
 * platform has stored, then a question to the person.
 *
 * @throws OsmosisError `INTERACTIVE_REQUIRED` with every name that has no value, when there is nobody to ask
 */
export async function resolveSecrets(
  context: Context,
  parts: { client: Client; required: readonly string[]; secretsFile: string | undefined },
): Promise<ResolvedSecrets> {
  const { client, required, secretsFile } = parts;
  const fromFile = secretsFile === undefined ? {} : await readSecretsFile(context, secretsFile);
  const provided: Record<string, string> = {};
  const sources: string[] = [];
  const open: string[] = [];
  for (const name of required) {
    const inFile = fromFile[name];
    const inEnvironment = context.env[name];
    if (inFile) {
      provided[name] = inFile;
      sources.push(`${name} (secrets file)`);
    } else if (inEnvironment) {
      provided[name] = inEnvironment;
      sources.push(`${name} (environment)`);
    } else open.push(name);
  }
  const stored = open.length === 0 ? [] : (await storedSecrets(client)).map((secret) => secret.name);
  const missing = open.filter((name) => !stored.includes(name));
  sources.push(...open.filter((name) => stored.includes(name)).map((name) => `${name} (stored)`));
  if (missing.length > 0 && !context.interactive) {
    throw new OsmosisError(
      "INTERACTIVE_REQUIRED",
      `${missing.length === 1 ? "A required secret has" : "Required secrets have"} no value: ${missing.join(", ")}.`,
      {
        hint: `Store ${missing.length === 1 ? "it" : "them"} with \`osmosis secret set ${missing[0] ?? "NAME"}\`, set the environment variable, or use --secrets-file.`,
        details: { missing, flags: ["--secrets-file"] },
      },
    );
  }
  for (const name of missing) {
    const value = await context.io.prompts.secret(`Value of ${name} (for this run only)`);
    if (value === "")
      throw new OsmosisError("VALIDATION", `The value of ${name} is empty.`, {
        hint: "Submit again, and type a value; or store one with `osmosis secret set`.",
      });
    provided[name] = value;
    sources.push(`${name} (typed in)`);
  }
  return { provided, sources };
}

async function readSecretsFile(context: Context, file: string): Promise<Record<string, string>> {
  const text =
    file === "-"
      ? await context.io.readStdin()
      : await readFile(resolve(context.io.cwd, file), "utf8").catch((error: unknown) => {
          throw new OsmosisError(
            "NOT_FOUND",
            `The secrets file ${file} cannot be read: ${errorMessage(error)}.`,
            {
              hint: "Give an existing file to --secrets-file, or - for stdin.",
              cause: error,
            },
          );
        });
  return parseSecrets(text, file);
}

/**
 * `NAME=value` lines: an `export` in front, comment lines and one pair of quotes around the value are allowed. No
 * escapes and no comments behind a value: a password may hold any character.
 *
 * @throws OsmosisError `VALIDATION` with the line that cannot be read; never with its text
 */
export function parseSecrets(text: string, file: string): Record<string, string> {
  const secrets: Record<string, string> = {};
  for (const [index, line] of text
    .replace(/^\uFEFF/, "")
    .split(/\r?\n/)
    .entries()) {
    if (line.trim() === "" || line.trimStart().startsWith("#")) continue;
    const match = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$/.exec(line);
    const name = match?.[1];
    if (name === undefined) {
      throw new OsmosisError(
        "VALIDATION",
        `${file === "-" ? "stdin" : file}:${index + 1} is not of the form NAME=value.`,
        {
          hint: "Write one NAME=value on each line.",
        },
      );
    }
    secrets[name] = (match?.[2] ?? "").replace(/^(["'])(.*)\1$/, "$2");
  }
  return secrets;
}

/** The error without the values that travelled with the request, longest first. */
export function hideSecrets(error: OsmosisError, { provided }: ResolvedSecrets): OsmosisError {
  const values = Object.values(provided).toSorted((a, b) => b.length - a.length);
  const hide = (text: string): string =>
    values.reduce((hidden, value) => hidden.replaceAll(value, "[REDACTED]"), text);
  const deep = (value: unknown): unknown => {
    if (typeof value === "string") return hide(value);
    if (Array.isArray(value)) return value.map(deep);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, deep(item)]));
  };
  return new OsmosisError(error.code, hide(error.message), {
    ...(error.hint === undefined ? {} : { hint: hide(error.hint) }),
    details: Object.fromEntries(
      Object.entries(error.details ?? {}).map(([key, value]) => [key, deep(value)]),
    ),
  });
}
