/**
 * Requests of the Tinker wire, as often as it takes: what is slow or fails for a moment is asked for again, what is
 * wrong becomes an `OsmosisError`.
 */
import {
  errorMessage,
  OsmosisError,
  TINKER_PREFIX,
  TINKER_PROTOBUF,
  TinkerFailed,
  TinkerPromise,
  TinkerTryAgain,
} from "@osmosis/protocol";
import type { z } from "zod";

export type WireOptions = {
  /** Without the path `/api/v1`. */
  readonly url: string;
  readonly apiKey: string;
  readonly fetch: typeof fetch;
  /** Waits; rejects when the signal is aborted. */
  readonly delay: (milliseconds: number, signal: AbortSignal) => Promise<void>;
};

/** A body in JSON, or in JSON and protocol buffers; in JSON it may have another path. */
export type WireBody = {
  readonly json: object;
  readonly jsonPath?: string;
  readonly protobuf?: () => Uint8Array;
};

export type WireAnswer = { readonly json: unknown } | { readonly protobuf: Uint8Array };

export type WireClient = {
  get<T>(path: string, schema: z.ZodType<T>, signal: AbortSignal): Promise<T>;
  post<T>(path: string, body: object, schema: z.ZodType<T>, signal: AbortSignal): Promise<T>;
  /** Starts something slow; resolves as soon as the server has accepted it. */
  start(path: string, body: WireBody, signal: AbortSignal): Promise<Pending>;
};

/** Something that the server has accepted. */
export type Pending = {
  /** Waits for the result. When the server has forgotten the promise, the same request is sent again. */
  result(): Promise<WireAnswer>;
};

/** In a row, before a server counts as down: some minutes with the pauses below. */
const MAX_FAILURES = 12;
const MAX_PAUSE_MS = 30_000;
const FIRST_PAUSE_MS = 250;
/** A server that answers "not yet" at once is not asked without a pause. */
const ASK_AGAIN_MS = 50;
const MAX_BAD_REQUESTS = 3;
const MAX_RESUBMISSIONS = 3;

export function createWireClient({ url, apiKey, fetch, delay }: WireOptions): WireClient {
  const base = `${url.replace(/\/+$/, "")}${TINKER_PREFIX}`;
  /** False as soon as the server has refused protocol buffers. */
  let speaksProtobuf = true;

  async function attempt(
    path: string,
    init: { method: "GET" | "POST"; body?: string | Uint8Array; headers?: Record<string, string> },
    signal: AbortSignal,
  ): Promise<Response | Error> {
    try {
      const response = await fetch(`${base}${path}`, {
        method: init.method,
        headers: { "x-api-key": apiKey, accept: "application/json", ...init.headers },
        ...(init.body !== undefined && { body: init.body as BodyInit }), // a view of an unshared buffer
        signal,
      });
      // The body belongs to the attempt: a connection may break in the middle of it.
      const bytes = await response.arrayBuffer();
      return new Response(bytes.byteLength === 0 ? null : bytes, {
        status: response.status,
        headers: response.headers,
      });
    } catch (error) {
      signal.throwIfAborted();
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  /** Repeats what may succeed later; other answers are the caller's. */
  async function send(
    path: string,
    init: Parameters<typeof attempt>[1],
    signal: AbortSignal,
  ): Promise<Response> {
    for (let failures = 0; ; failures++) {
      const response = await attempt(path, init, signal);
      if (response instanceof Response && !isPassing(response.status)) return response;
      if (failures >= MAX_FAILURES) {
        const reason =
          response instanceof Response ? `answers ${response.status}` : `fails: ${errorMessage(response)}`;
        throw new OsmosisError("NETWORK", `The trainer at ${url} ${reason}.`, {
          hint: "Check the address of the trainer, and whether it runs.",
        });
      }
      await delay(Math.min(FIRST_PAUSE_MS * 2 ** failures, MAX_PAUSE_MS), signal);
    }
  }

  async function checked(path: string, response: Response): Promise<Response> {
    if (response.ok) return response;
    throw await refusal(path, response);
  }

  async function parsed<T>(path: string, response: Response, schema: z.ZodType<T>): Promise<T> {
    const value: unknown = await (await checked(path, response)).json().catch(() => undefined);
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    throw new OsmosisError(
      "NETWORK",
      `The trainer at ${url} answered ${path} with something else than the wire says.`,
      {
        hint: "Check the address of the trainer.",
      },
    );
  }

  async function submit(path: string, body: WireBody, signal: AbortSignal): Promise<string> {
    if (speaksProtobuf && body.protobuf !== undefined) {
      const headers = { "content-type": TINKER_PROTOBUF };
      const response = await send(path, { method: "POST", body: body.protobuf(), headers }, signal);
      if (response.status !== 415 && response.status !== 422) {
        return (await parsed(path, response, TinkerPromise)).request_id;
      }
      speaksProtobuf = false;
    }
    const jsonPath = body.jsonPath ?? path;
    return (await parsed(jsonPath, await send(jsonPath, postOf(body.json), signal), TinkerPromise))
      .request_id;
  }

  /** The result of a promise, or `undefined` when the server has forgotten it. */
  async function collect(
    id: string,
    wantsProtobuf: boolean,
    signal: AbortSignal,
  ): Promise<WireAnswer | undefined> {
    const path = "/retrieve_future";
    const request = postOf({ request_id: id });
    if (wantsProtobuf) request.headers["accept"] = `${TINKER_PROTOBUF}, application/json;q=0.5`;
    for (let badRequests = 0; ;) {
      const response = await send(path, request, signal);
      if (response.status === 410) return undefined;
      // Something between here and the server may answer 400 for no reason.
      if (response.status === 400 && badRequests++ < MAX_BAD_REQUESTS) continue;
      await checked(path, response);
      if (response.headers.get("content-type")?.includes(TINKER_PROTOBUF) === true) {
        return { protobuf: new Uint8Array(await response.arrayBuffer()) };
      }
      const json: unknown = await response.json().catch(() => undefined);
      const failed = TinkerFailed.safeParse(json);
      if (failed.success) {
        const { error, category } = failed.data;
        throw new OsmosisError(
          category === "user" ? "VALIDATION" : "PLATFORM_ERROR",
          `The trainer: ${error}`,
        );
      }
      if (!TinkerTryAgain.safeParse(json).success) return { json };
      await delay(ASK_AGAIN_MS, signal);
    }
  }

  return {
    get: async (path, schema, signal) => parsed(path, await send(path, { method: "GET" }, signal), schema),
    post: async (path, body, schema, signal) => parsed(path, await send(path, postOf(body), signal), schema),
    async start(path, body, signal) {
      let id = await submit(path, body, signal);
      return {
        async result() {
          for (let resubmissions = 0; resubmissions <= MAX_RESUBMISSIONS; resubmissions++) {
            const answer = await collect(id, body.protobuf !== undefined || path === "/asample", signal);
            if (answer !== undefined) return answer;
            id = await submit(path, body, signal);
          }
          throw new OsmosisError("PLATFORM_ERROR", `The trainer at ${url} forgets its promises.`);
        },
      };
    },
  };
}

function postOf(body: object) {
  const headers: Record<string, string> = { "content-type": "application/json" };
  return { method: "POST" as const, body: JSON.stringify(body), headers };
}

/** Timeouts, too many requests, and servers that are starting or broken for a moment. */
function isPassing(status: number): boolean {
  return status === 408 || status === 429 || (status >= 500 && status !== 501 && status !== 507);
}

async function refusal(path: string, response: Response): Promise<OsmosisError> {
  const { status } = response;
  const text = (await response.text()).slice(0, 500);
  const message = `The trainer refused ${path} (${status}): ${text}`;
  if (status === 401 || status === 403) {
    return new OsmosisError("AUTH_REQUIRED", message, { hint: "Check the API key of the trainer." });
  }
  if (status === 404) return new OsmosisError("NOT_FOUND", message);
  return new OsmosisError(status < 500 ? "VALIDATION" : "PLATFORM_ERROR", message);
}
