import { OsmosisError, errorMessage, type ErrorCode } from "@osmosis/protocol";
import type { Style } from "./style.ts";
import { printable } from "./style.ts";
import { stringifyStrict } from "./strict-json.ts";

/** A wrong call of the command itself: exit code 2. */
export class UsageError extends Error {
  readonly hint: string | undefined;

  constructor(message: string, hint?: string) {
    super(message);
    this.name = "UsageError";
    this.hint = hint;
  }
}

type Failure = {
  readonly code: ErrorCode;
  readonly message: string;
  readonly hint: string | undefined;
  readonly details: Readonly<Record<string, unknown>>;
};

/** What is said about anything that was thrown. */
function failureOf(error: unknown): Failure {
  if (error instanceof OsmosisError) {
    return { code: error.code, message: error.message, hint: error.hint, details: error.details ?? {} };
  }
  if (error instanceof UsageError) {
    return { code: "VALIDATION", message: error.message, hint: error.hint, details: {} };
  }
  if (isFileError(error)) {
    return { code: "STORAGE", message: `${error.message}.`, hint: fileRemedy(error.code), details: {} };
  }
  return {
    code: "INTERNAL",
    message: errorMessage(error),
    hint: "This is a fault of osmosis. Run again with OSMOSIS_DEBUG=1 to see where it happened.",
    details: {},
  };
}

const WRONG_PATH = ["ENOENT", "ENOTDIR", "EISDIR", "EEXIST", "ENAMETOOLONG"];
const FORBIDDEN = ["EACCES", "EPERM", "EROFS"];
const FULL = ["ENOSPC", "EDQUOT", "EFBIG"];
const FILE_ERRORS: ReadonlySet<string> = new Set([...WRONG_PATH, ...FORBIDDEN, ...FULL]);

/** What the file system refuses, for a path that somebody named or a disk that is theirs. */
export function isFileError(error: unknown): error is Error & { readonly code: string } {
  return (
    error instanceof Error &&
    "syscall" in error &&
    "code" in error &&
    typeof error.code === "string" &&
    FILE_ERRORS.has(error.code)
  );
}

function fileRemedy(code: string): string {
  if (FULL.includes(code)) return "Free some space, and run the command again.";
  if (FORBIDDEN.includes(code)) return "Name another path, or ask for the right to use this one.";
  return "Check the path.";
}

/** The error envelope of `--json`, one line. */
export function failureJson(error: unknown, command: string, version: string): string {
  const { code, message, hint, details } = failureOf(error);
  return `${stringifyStrict({
    schema_version: 1,
    command,
    cli_version: version,
    error: { code, message, ...(hint === undefined ? {} : { hint }), details },
  })}\n`;
}

/** The error for a person: what happened, each fault on its own line, and the remedy. */
export function failureText(error: unknown, style: Style, debug: boolean): string {
  const { message, hint, details } = failureOf(error);
  const trace =
    debug && error instanceof Error && error.stack !== undefined ? `${style.dim(error.stack)}\n` : "";
  return (
    `${style.red("Error:")} ${printable(message)}\n` +
    issueLines(details["issues"])
      .filter((line, _, lines) => lines.length > 1 || !isTold(line, message))
      .map((line) => `  - ${printable(line)}\n`)
      .join("") +
    (hint === undefined ? "" : `${printable(hint)}\n`) +
    trace
  );
}

/** A single fault is often the message already; its correction may be put in other words there. */
function isTold(line: string, message: string): boolean {
  return message.includes(line.replace(/ \(did you mean .*\?\)$/, ""));
}

/** Issues are strings or `{key, message, key_correction}`. */
function issueLines(issues: unknown): string[] {
  if (!Array.isArray(issues)) return [];
  return issues.map((issue: unknown) => {
    if (typeof issue !== "object" || issue === null) return String(issue);
    const { place, key, message, key_correction: correction } = issue as Record<string, unknown>;
    const where = typeof place === "string" ? `${place}: ` : "";
    const what = typeof key === "string" ? `${key} ` : "";
    const maybe = typeof correction === "string" ? ` (did you mean ${correction}?)` : "";
    return `${where}${what}${String(message)}${maybe}`;
  });
}
