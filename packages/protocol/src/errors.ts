/** Codes that a program may branch on. They are the codes of the `--json` error envelope, too. */
export const ERROR_CODES = [
  "VALIDATION",
  "AUTH_REQUIRED",
  "FORBIDDEN",
  "NOT_FOUND",
  "CONFLICT",
  "UPGRADE_REQUIRED",
  "RATE_LIMITED",
  "PLATFORM_ERROR",
  "INTERNAL",
  "INTERACTIVE_REQUIRED",
  "WORKSPACE_REQUIRED",
  "NETWORK",
  "STORAGE",
  "ENGINE_MISSING",
  /** A run that was waited for did not finish well. */
  "RUN_FAILED",
] as const;

export type ErrorCode = (typeof ERROR_CODES)[number];

/**
 * An expected failure. `message` says what happened and where, `hint` what to do next. Everything else that is thrown
 * is a bug: the server answers it with 500, the CLI with `INTERNAL`.
 */
export class OsmosisError extends Error {
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: { hint?: string; cause?: unknown; details?: Readonly<Record<string, unknown>> } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "OsmosisError";
    this.code = code;
    this.hint = options.hint;
    this.details = options.details;
  }
}

/** The text of anything that was thrown. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
