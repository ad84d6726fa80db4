import type { ChatErrorBody } from "@osmosis/protocol";

/** A refusal as OpenAI clients understand it. */
export class ChatError extends Error {
  readonly status: number;
  readonly code: string;
  readonly param: string | undefined;

  constructor(
    status: number,
    code: string,
    message: string,
    options: { param?: string; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "ChatError";
    this.status = status;
    this.code = code;
    this.param = options.param;
  }
}

/** The body of a reply that is not 2xx, and of an error inside a stream. */
export function chatErrorBody(error: ChatError): ChatErrorBody {
  return {
    error: {
      message: error.message,
      type: errorType(error.status),
      code: error.code,
      param: error.param ?? null,
    },
  };
}

function errorType(status: number): string {
  if (status === 401 || status === 403) return "authentication_error";
  if (status === 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}
