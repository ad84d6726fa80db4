import type { RolloutErrorCategory, RolloutPhase } from "@osmosis/protocol";
import { OsmosisError, errorMessage } from "@osmosis/protocol";

/** Why a rollout has no result; `message` is for the person who wrote the workflow or the grader. */
export type RolloutFailure = {
  readonly phase: RolloutPhase;
  readonly category: RolloutErrorCategory;
  readonly message: string;
};

/** The chat endpoint of the rollout could not be reached, refused, or broke off. */
export class ChatEndpointError extends Error {
  /** HTTP status of its answer; undefined when there was none. */
  readonly status: number | undefined;
  /** The code of its error body, such as `context_length_exceeded`. */
  readonly code: string | undefined;

  constructor(
    message: string,
    options: { status?: number | undefined; code?: string | undefined; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "ChatEndpointError";
    this.status = options.status;
    this.code = options.code;
  }
}

/** True when the endpoint refused a call because the conversation no longer fits: the policy's doing, not the endpoint's. */
export function isOutOfContext(error: unknown): boolean {
  return causesOf(error).some(
    (link) => link instanceof ChatEndpointError && link.code === "context_length_exceeded",
  );
}

/** The failure that an exception of user code amounts to; `thrower` is the method that threw, such as `MyGrader.grade`. */
export function failureOf(error: unknown, phase: RolloutPhase, thrower: string): RolloutFailure {
  const category = categoryOf(error);
  const name = error instanceof Error && error.name !== "Error" ? `${error.name}: ` : "";
  const hint = error instanceof OsmosisError && error.hint !== undefined ? ` ${error.hint}` : "";
  return { phase, category, message: `${thrower} threw ${name}${errorMessage(error)}${hint}` };
}

function categoryOf(error: unknown): RolloutErrorCategory {
  for (const link of causesOf(error)) {
    if (link instanceof ChatEndpointError) return "http_error";
    if (link.name === "TimeoutError") return "timeout";
    if (link.name === "AssertionError" || link.name === "ZodError") return "validation_error";
    if (link instanceof OsmosisError && link.code === "VALIDATION") return "validation_error";
  }
  return "agent_error";
}

/** The error, what caused it, and so on; agent frameworks wrap what a tool or a model threw, under `cause` or `error`. */
function causesOf(error: unknown): Error[] {
  const chain: Error[] = [];
  let link: unknown = error;
  while (link instanceof Error && !chain.includes(link)) {
    chain.push(link);
    link = link.cause ?? ("error" in link ? link.error : undefined);
  }
  return chain;
}

/** `text` with the secret blacked out; a secret so short that it may be a word stays. */
export function withoutSecret(text: string, secret: string | null): string {
  return secret !== null && secret.length >= 8 ? text.replaceAll(secret, "[redacted]") : text;
}
