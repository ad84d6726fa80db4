import { readFile, realpath, stat } from "node:fs/promises";
import { isAbsolute, relative, resolve, sep } from "node:path";
import { EvalRunConfig, issuesOf, OsmosisError, TrainingRunConfig, type Issue } from "@osmosis/protocol";
import { parse, TomlError } from "smol-toml";
import { z } from "zod";
import type { Context } from "../context.ts";
import type { RunKind } from "./kind.ts";
import { lineOfKey } from "./toml-position.ts";

const MAX_BYTES = 1024 ** 2;
/** The longest line that a fault shows. */
const MAX_SHOWN = 200;
/** Nobody mends more faults at a time. */
const MAX_ISSUES = 50;

/** A configuration, read and checked. */
export type RunConfigFile = {
  /** Relative to the workspace. */
  readonly path: string;
  readonly config: EvalRunConfig | TrainingRunConfig;
  /** The tables as they stand in the file, for the wire: the platform fills in its own defaults. */
  readonly raw: Readonly<Record<string, unknown>>;
};

const FOLDERS = { eval: "configs/eval", train: "configs/training" } as const;

/**
 * Reads a configuration. A relative path counts from the current folder and, when there is nothing, from the
 * workspace's top.
 *
 * @param model - replaces `experiment.model_path`
 * @throws OsmosisError `NOT_FOUND` without the file; `VALIDATION` for a file outside of its folder, for text that is no
 * TOML and for every key that is wrong, each with its line
 */
export async function readConfigFile(
  context: Context,
  parts: { root: string; kind: RunKind; file: string; model: string | undefined },
): Promise<RunConfigFile> {
  const { kind, file } = parts;
  const root = await realpath(parts.root);
  const found = await findFile([resolve(context.io.cwd, file), resolve(root, file)]);
  if (found === undefined) {
    throw new OsmosisError("NOT_FOUND", `There is no configuration ${file}.`, {
      hint: `Configurations are in ${FOLDERS[kind]}/: \`ls ${FOLDERS[kind]}\`.`,
    });
  }
  const path = relative(root, found);
  const isInside = !path.startsWith(`..${sep}`) && !isAbsolute(path);
  const isInFolder = path.split(sep).join("/").startsWith(`${FOLDERS[kind]}/`) && path.endsWith(".toml");
  if (!isInside || !isInFolder) {
    throw new OsmosisError(
      "VALIDATION",
      isInside
        ? `${path} is not a ${kind === "eval" ? "n evaluation" : "training"} configuration.`.replace(
            "a n",
            "an",
          )
        : `${file} is outside of the workspace ${root}.`,
      { hint: `Put it into ${FOLDERS[kind]}/ and give it a name that ends in .toml.` },
    );
  }
  const { size } = await stat(found);
  if (size > MAX_BYTES) {
    throw new OsmosisError(
      "VALIDATION",
      `${path} has ${size} bytes; a configuration may have ${MAX_BYTES}.`,
      {
        hint: "Name the configuration's own file; rows belong into a data set.",
      },
    );
  }
  const text = decode(await readFile(found), path);
  const raw = parseToml(text, path);
  return checkConfig({
    text,
    path,
    raw: parts.model === undefined ? raw : withModel(raw, parts.model),
    kind,
  });
}

/** Bytes of another encoding must not become a name with replacement characters. */
function decode(bytes: Buffer, path: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new OsmosisError("VALIDATION", `${path} is not in UTF-8, as TOML must be.`, {
      hint: "Save it as UTF-8 in your editor.",
      cause: error,
    });
  }
}

function parseToml(text: string, path: string): Record<string, unknown> {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const reason = error.message.split("\n")[0]?.replace(/^Invalid TOML document: /, "") ?? "";
    const shown = error.codeblock.split("\n").map((line) => line.slice(0, MAX_SHOWN));
    throw new OsmosisError(
      "VALIDATION",
      `${path}:${error.line}:${error.column} is not valid TOML: ${reason}.\n${shown.join("\n").trimEnd()}`,
      {
        hint: `Correct line ${error.line} of ${path}.`,
        cause: error,
        details: { path, line: error.line, column: error.column },
      },
    );
  }
}

function withModel(raw: Record<string, unknown>, model: string): Record<string, unknown> {
  const experiment = raw["experiment"];
  if (typeof experiment !== "object" || experiment === null) return raw;
  return { ...raw, experiment: { ...experiment, model_path: model } };
}

function checkConfig(file: {
  text: string;
  path: string;
  raw: Record<string, unknown>;
  kind: RunKind;
}): RunConfigFile {
  const { text, path, raw, kind } = file;
  const schema = kind === "eval" ? EvalRunConfig : TrainingRunConfig;
  const parsed = schema.safeParse(raw);
  if (parsed.success) return { path, config: parsed.data, raw };
  const issues = parsed.error.issues.flatMap((issue) =>
    issuesOf(new z.ZodError([issue]), knownKeys(schema, issue.path.map(String))),
  );
  const placed = issues
    .slice(0, MAX_ISSUES)
    .map((issue) => inOtherTable(placeIssue(issue, text, path), schema));
  const only = placed.length === 1 ? placed[0] : undefined;
  throw new OsmosisError(
    "VALIDATION",
    only === undefined
      ? `${path} has ${issues.length} faults${issues.length > MAX_ISSUES ? `; the first ${MAX_ISSUES}` : ""}:`
      : `${only.place}: ${only.key} ${only.message}${only.key_correction === undefined ? "" : ` (did you mean ${only.key_correction}?)`}.`,
    {
      hint: "configs/AGENTS.md lists every key, its type and its default.",
      details: {
        path,
        ...(only === undefined ? {} : { issue: only }),
        ...(only === undefined ? { issues: placed } : {}),
      },
    },
  );
}

type PlacedIssue = Issue & { readonly place: string; readonly line: number | null };

function placeIssue(issue: Issue, text: string, path: string): PlacedIssue {
  const line = lineOfKey(text, issue.key.split("."));
  return {
    ...issue,
    message: readable(issue.message),
    line: line ?? null,
    place: line === undefined ? path : `${path}:${line}`,
  };
}

/** zod's words for a wrong value, as the end of a sentence that begins with the key. */
function readable(message: string): string {
  const [, expected = "", received] = /^Invalid input: expected (.+), received (.+)$/.exec(message) ?? [];
  if (received === "undefined") return "is missing";
  if (received !== undefined)
    return `must be ${NOUNS[expected] ?? expected}, not ${NOUNS[received] ?? received}`;
  const [, direction, bound, limit] =
    /^Too (?:small|big): expected \w+ to (?:be|have) ([<>]=?)(-?[\d.e+]+)(.*)$/.exec(message) ?? [];
  if (direction !== undefined)
    return `must ${limit === "" ? "be" : "have"} ${BOUNDS[direction]} ${bound}${limit}`;
  return /^[A-Z]/.test(message) ? `is wrong: ${message.charAt(0).toLowerCase()}${message.slice(1)}` : message;
}

/** What zod calls a type, in the words of a person. */
const NOUNS: Readonly<Record<string, string>> = {
  int: "a whole number",
  number: "a number",
  string: "a text in quotes",
  boolean: "true or false",
  object: "a table",
  record: "a table",
  array: "a list",
  tuple: "a list",
  TomlDate: "a date",
  Infinity: "inf",
  NaN: "nan",
};

const BOUNDS: Readonly<Record<string, string>> = {
  ">=": "at least",
  ">": "more than",
  "<=": "at most",
  "<": "less than",
};

/** A key of another table is the likeliest mistake of one that is spelt right. */
function inOtherTable(issue: PlacedIssue, schema: z.ZodType): PlacedIssue {
  if (issue.message !== "is not a known key" || issue.key_correction !== undefined) return issue;
  const name = issue.key.split(".").at(-1) ?? "";
  const table = knownKeys(schema, []).find((one) => knownKeys(schema, [one]).includes(name));
  return table === undefined ? issue : { ...issue, key_correction: `${table}.${name}` };
}

/** The keys that the table at a path could have. */
function knownKeys(schema: z.ZodType, path: readonly string[]): string[] {
  let at: z.ZodType = schema;
  for (const name of path) {
    const inner = unwrap(at);
    const next = inner instanceof z.ZodObject ? inner.shape[name] : undefined;
    if (next === undefined) return [];
    at = next;
  }
  const inner = unwrap(at);
  return inner instanceof z.ZodObject ? Object.keys(inner.shape) : [];
}

function unwrap(schema: z.ZodType): z.ZodType {
  let at = schema;
  for (;;) {
    // The schemas of this repository are made with zod's own classes, not its core's.
    if (at instanceof z.ZodPipe) at = at.in as z.ZodType;
    else if (at instanceof z.ZodDefault || at instanceof z.ZodPrefault || at instanceof z.ZodOptional) {
      at = at.unwrap() as z.ZodType;
    } else return at;
  }
}

async function findFile(candidates: readonly string[]): Promise<string | undefined> {
  for (const candidate of candidates) {
    const found = await stat(candidate).catch(() => undefined);
    if (found?.isFile() === true) return await realpath(candidate);
  }
  return undefined;
}
