import type { z } from "zod";
import { ERROR_CODES, OsmosisError, errorMessage, type ErrorCode } from "./errors.ts";
import { fillPath, type PathParameters, type Route } from "./route.ts";

export type ClientOptions = {
  readonly baseUrl: string;
  readonly fetch: typeof fetch;
  /** Headers of every request, asked for anew each time. */
  readonly headers?: () => Record<string, string>;
  /** Milliseconds that one call may take; 30 seconds without it. */
  readonly timeoutMs?: number;
};

type Call<Path extends string, Query, Body> = ([PathParameters<Path>] extends [never]
  ? { params?: undefined }
  : { params: Record<PathParameters<Path>, string> }) &
  (undefined extends Query ? { query?: Query } : { query: Query }) &
  (undefined extends Body ? { body?: Body } : { body: Body }) & {
    signal?: AbortSignal;
    headers?: Record<string, string>;
    timeoutMs?: number;
  };

export type Client = {
  readonly baseUrl: string;
  /**
   * @throws OsmosisError with the server's code and text, `NETWORK` when no answer came, `PLATFORM_ERROR` when the
   * answer does not fit the route.
   */
  call<Query extends z.ZodType, Body extends z.ZodType, Answer extends z.ZodType, Path extends string>(
    route: Route<Query, Body, Answer, Path>,
    options: Call<Path, z.input<Query>, z.input<Body>>,
  ): Promise<z.output<Answer>>;
};

/** The typed client of every route. It never retries: what may be repeated is the caller's knowledge. */
export function createClient({ baseUrl, fetch, headers, timeoutMs = 30_000 }: ClientOptions): Client {
  const root = baseUrl.replace(/\/+$/, "");
  return {
    baseUrl: root,
    async call(route, options) {
      const url = new URL(root + fillPath(route.path, options.params ?? {}));
      // Queries are flat: zod's input type of a generic route cannot say so.
      const query = (options.query ?? {}) as Record<string, string | number | boolean | undefined>;
      for (const [name, value] of Object.entries(query)) {
        if (value !== undefined) url.searchParams.set(name, String(value));
      }
      const deadline = AbortSignal.timeout(options.timeoutMs ?? timeoutMs);
      let response: Response;
      let text: string;
      try {
        response = await fetch(url, {
          method: route.method,
          headers: {
            accept: "application/json",
            ...(options.body === undefined ? {} : { "content-type": "application/json" }),
            ...headers?.(),
            ...options.headers,
          },
          ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
          signal: options.signal ? AbortSignal.any([options.signal, deadline]) : deadline,
          redirect: "manual",
        });
        text = await response.text();
      } catch (error) {
        if (options.signal?.aborted) throw error;
        throw new OsmosisError("NETWORK", `No answer from ${root}: ${causeText(error)}.`, {
          hint: "Check that the platform is running (`osmosis up`) and that the URL is right.",
          cause: error,
        });
      }
      if (!response.ok) throw errorOfAnswer(response.status, text);
      const parsed = route.response.safeParse(text === "" ? {} : parseJson(text, url));
      if (!parsed.success) {
        throw new OsmosisError(
          "PLATFORM_ERROR",
          `${url.pathname} gave an unexpected answer: ${parsed.error.message}`,
        );
      }
      return parsed.data;
    },
  };
}

function parseJson(text: string, url: URL): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new OsmosisError("PLATFORM_ERROR", `${url.pathname} did not answer with JSON.`, { cause: error });
  }
}

function causeText(error: unknown): string {
  if (error instanceof DOMException && error.name === "TimeoutError") return "it took too long";
  if (error instanceof Error && error.cause instanceof Error) return error.cause.message;
  return errorMessage(error);
}

const STATUS_CODES: Readonly<Record<number, ErrorCode>> = {
  400: "VALIDATION",
  401: "AUTH_REQUIRED",
  403: "FORBIDDEN",
  404: "NOT_FOUND",
  409: "CONFLICT",
  413: "VALIDATION",
  422: "VALIDATION",
  426: "UPGRADE_REQUIRED",
  429: "RATE_LIMITED",
  507: "STORAGE",
};

/** Turns an error answer into the error that the caller branches on; the body's own code wins over the status. */
export function errorOfAnswer(status: number, text: string): OsmosisError {
  let body: Record<string, unknown> = {};
  try {
    const json: unknown = JSON.parse(text);
    if (typeof json === "object" && json !== null) body = json as Record<string, unknown>;
  } catch {
    // Not JSON: the status and the beginning of the text are all there is to say.
  }
  const said = typeof body["error"] === "string" ? body["error"] : body["message"];
  const message = typeof said === "string" ? said : `API error: HTTP ${status}. ${text.slice(0, 200)}`;
  const code = (ERROR_CODES as readonly unknown[]).includes(body["code"])
    ? (body["code"] as ErrorCode)
    : (STATUS_CODES[status] ?? "PLATFORM_ERROR");
  const { error: _error, message: _message, hint, ...rest } = body;
  return new OsmosisError(code, message, {
    ...(typeof hint === "string" ? { hint } : {}),
    details: { status_code: status, ...rest },
  });
}
