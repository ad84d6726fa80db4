import { errorMessage } from "@osmosis/protocol";

/** What the text of an answer says as JSON; undefined when it is none. */
export function jsonOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Why a request got no answer: `fetch` itself only says that it failed, and keeps the reason as its cause. */
export function networkFailure(error: unknown): string {
  if (error instanceof DOMException && error.name === "TimeoutError") return "it took too long";
  return error instanceof Error && error.cause instanceof Error ? error.cause.message : errorMessage(error);
}
