import { OsmosisError, type ErrorCode } from "@osmosis/protocol";
import { HTTPException } from "hono/http-exception";

/** The body of every answer that is not a success. `code` is what a program branches on. */
export interface ErrorBody {
  error: string;
  code: string;
  hint?: string;
  [detail: string]: unknown;
}

const STATUS_OF_CODE: Readonly<Record<ErrorCode, ErrorStatus>> = {
  VALIDATION: 400,
  WORKSPACE_REQUIRED: 400,
  INTERACTIVE_REQUIRED: 400,
  AUTH_REQUIRED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  CONFLICT: 409,
  UPGRADE_REQUIRED: 426,
  RATE_LIMITED: 429,
  STORAGE: 507,
  NETWORK: 502,
  RUN_FAILED: 500,
  PLATFORM_ERROR: 500,
  ENGINE_MISSING: 500,
  INTERNAL: 500,
};

type ErrorStatus = 400 | 401 | 403 | 404 | 408 | 409 | 413 | 426 | 429 | 500 | 502 | 507;

/**
 * The answer to a failure. An expected one keeps its message, hint and `details`, where `details.code` replaces the
 * code by a narrower one that clients know (`TOKEN_EXPIRED`, `GIT_REPOSITORY_NOT_CONNECTED`). Anything else is a bug:
 * its text may hold secrets and stays out of the answer.
 */
export function errorAnswer(error: unknown): { status: ErrorStatus; body: ErrorBody; isBug: boolean } {
  if (error instanceof OsmosisError) {
    const body: ErrorBody = { error: error.message, code: error.code };
    if (error.hint !== undefined) body.hint = error.hint;
    return { status: STATUS_OF_CODE[error.code], body: { ...body, ...error.details }, isBug: false };
  }
  if (error instanceof HTTPException && error.status < 500) {
    const status = error.status === 413 || error.status === 408 ? error.status : 400;
    const code = status === 408 ? "NETWORK" : "VALIDATION";
    return { status, body: { error: error.message, code }, isBug: false };
  }
  const body = {
    error: "The server failed to answer this request.",
    code: "INTERNAL",
    hint: "The cause is in the server's log.",
  };
  return { status: 500, body, isBug: true };
}
