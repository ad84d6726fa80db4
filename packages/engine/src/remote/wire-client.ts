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
import { z } from "zod";

export type WireOptions = {
  /** Without the path `/api/v1`. */
  readonly url: string;
  readonly apiKey: string;
  readonly fetch: typeof fetch;
  /** Waits; rejects when the signal is aborted. */
  readonly delay: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  /** How long a trainer that cannot be reached, or answers that it cannot now, is asked again; by default five minutes. */
  readonly patienceMs?: number;
  /** Told when a trainer is asked again, once for each time that it is away. */
  readonly notice?: (text: string) => void;
  /** Longest time that one request may stay without an answer; by default a minute. */
  readonly requestTimeoutMs?: number;
  /** Longest time until a result has to be there; by default an hour. */
  readonly resultTimeoutMs?: number;
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
  delete(path: string, signal: AbortSignal): Promise<void>;
  /** A file behind a few redirections; undefined where the server has none, or does not bring it over after some tries. */
  download(path: string, signal: AbortSignal): Promise<Uint8Array | undefined>;
};

/** Something that the server has accepted. */
export type Pending = {
  /** Waits for the result. When the server has forgotten the promise, the same request is sent again. */
  result(): Promise<WireAnswer>;
};

/** A server counts as down after so long, or after so many failures in a row. */
const PATIENCE_MS = 5 * 60_000;
const MAX_FAILURES = 16;
/** A trainer that was silent once is slow, no more. */
const MIN_FAILURES = 3;
/** Fewer in a row are nothing to talk about. */
const FAILURES_TOLD = 2;
const MAX_PAUSE_MS = 30_000;
const FIRST_PAUSE_MS = 250;
/** A server that answers "not yet" at once is not asked without a pause. */
const ASK_AGAIN_MS = 50;
const MAX_BAD_REQUESTS = 3;
const MAX_RESUBMISSIONS = 3;
const REQUEST_TIMEOUT_MS = 60_000;
/** A gradient of a large batch on a large model takes its time. */
const RESULT_TIMEOUT_MS = 3_600_000;
const DOWNLOAD_TIMEOUT_MS = 30 * 60_000;
/** A checkpoint can do without its archive, so nobody waits long for one. */
const MAX_DOWNLOAD_FAILURES = 3;

export function createWireClient({
  url,
  apiKey,
  fetch,
  delay,
  patienceMs = PATIENCE_MS,
  notice,
  requestTimeoutMs = Math.min(REQUEST_TIMEOUT_MS, patienceMs),
  resultTimeoutMs = RESULT_TIMEOUT_MS,
}: WireOptions): WireClient {
  const base = `${url.replace(/\/+$/, "")}${TINKER_PREFIX}`;
  /** False as soon as the server has refused protocol buffers. */
  let speaksProtobuf = true;
  /** Whether somebody knows that the trainer is away. */
  let isTold = false;

  async function attempt(
    path: string,
    init: { method: "GET" | "POST" | "DELETE"; body?: string | Uint8Array; headers?: Record<string, string> },
    signal: AbortSignal,
  ): Promise<Response | Error> {
    const silence = AbortSignal.timeout(requestTimeoutMs);
    try {
      const response = await fetch(`${base}${path}`, {
        method: init.method,
        headers: { "x-api-key": apiKey, accept: "application/json", ...init.headers },
        ...(init.body !== undefined && { body: init.body as BodyInit }), // a view of an unshared buffer
        signal: AbortSignal.any([signal, silence]),
      });
      // The body belongs to the attempt: a connection may break in the middle of it.
      const bytes = await response.arrayBuffer();
      return new Response(bytes.byteLength === 0 ? null : bytes, {
        status: response.status,
        headers: response.headers,
      });
    } catch (error) {
      signal.throwIfAborted();
      if (silence.aborted) return new Silence(`no answer within ${requestTimeoutMs / 1000} s`);
      return error instanceof Error ? error : new Error(causeText(error));
    }
  }

  /** Repeats what may succeed later; other answers are the caller's. */
  async function send(
    path: string,
    init: Parameters<typeof attempt>[1],
    signal: AbortSignal,
    /** Whether a server that says nothing is working on it. */
    maySleep = false,
  ): Promise<Response> {
    const since = performance.now();
    for (let failures = 1; ; failures++) {
      const response = await attempt(path, init, signal);
      if (response instanceof Response && !isPassing(response.status)) {
        isTold = false;
        return response;
      }
      if (maySleep && (response instanceof Silence || isTimeout(response))) return NOT_YET();
      const reason = await reasonOf(response);
      const leftMs = patienceMs - (performance.now() - since);
      if (failures > MAX_FAILURES || (leftMs <= 0 && failures >= MIN_FAILURES)) {
        throw new OsmosisError("NETWORK", `The trainer at ${url} ${reason} (asked ${failures} times).`, {
          hint: "Check the address of the trainer, whether it runs, and its log. Then submit the run again.",
        });
      }
      if (failures >= FAILURES_TOLD && !isTold) {
        isTold = true;
        notice?.(
          `The trainer at ${url} ${reason}; it is asked again for ${Math.ceil(Math.max(0, leftMs) / 1000)} s.`,
        );
      }
      await delay(Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), MAX_PAUSE_MS, Math.max(0, leftMs)), signal);
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
        hint: "Check the address of the trainer: something else may listen there.",
      },
    );
  }

  /** The archive itself, or the address of one: by redirection, or in JSON. */
  async function downloadFrom(path: string, signal: AbortSignal): Promise<Uint8Array | undefined> {
    let address = `${base}${path}`;
    for (let hops = 0; hops < 5; hops++) {
      const found = await fetchFile(address, signal);
      if (found === undefined) return undefined;
      if (found.location !== undefined) {
        address = new URL(found.location, address).href;
        continue;
      }
      if (!found.isJson) return found.bytes;
      const named = z.object({ url: z.url() }).safeParse(jsonOf(found.bytes));
      if (!named.success) return undefined;
      address = named.data.url;
    }
    return undefined;
  }

  /** Undefined for what is not there, or not to be had after some tries. */
  async function fetchFile(address: string, signal: AbortSignal) {
    const isOurs = new URL(address).origin === new URL(base).origin;
    for (let failures = 0; failures <= MAX_DOWNLOAD_FAILURES; failures++) {
      if (failures > 0) await delay(FIRST_PAUSE_MS * 2 ** failures, signal);
      try {
        const response = await fetch(address, {
          redirect: "manual",
          // The key is for the trainer only, not for a store that it points to.
          headers: isOurs ? { "x-api-key": apiKey } : {},
          signal: AbortSignal.any([signal, AbortSignal.timeout(DOWNLOAD_TIMEOUT_MS)]),
        });
        const isRedirect = response.status >= 300 && response.status < 400;
        const location = isRedirect ? (response.headers.get("location") ?? undefined) : undefined;
        if (response.ok) {
          const isJson = response.headers.get("content-type")?.includes("json") === true;
          return { location, isJson, bytes: new Uint8Array(await response.arrayBuffer()) };
        }
        await response.body?.cancel();
        if (location !== undefined) return { location, isJson: false, bytes: new Uint8Array() };
        if (!isPassing(response.status)) return undefined;
      } catch {
        // Whatever broke the connection, but for the caller.
        signal.throwIfAborted();
      }
    }
    return undefined;
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
    // Measured by the clock: it bounds how long a server may say "not yet".
    const end = performance.now() + resultTimeoutMs;
    for (let badRequests = 0; ;) {
      const response = await send(path, request, signal, true);
      // A server that was started again may not know that it ever made the promise.
      if (response.status === 410 || response.status === 404) return undefined;
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
      if (performance.now() > end) {
        throw new OsmosisError(
          "NETWORK",
          `The trainer at ${url} has no result after ${Math.round(resultTimeoutMs / 1000)} s.`,
          { hint: "See what it does in its log; the run can be started again." },
        );
      }
      await delay(ASK_AGAIN_MS, signal);
    }
  }

  return {
    get: async (path, schema, signal) => parsed(path, await send(path, { method: "GET" }, signal), schema),
    post: async (path, body, schema, signal) => parsed(path, await send(path, postOf(body), signal), schema),
    delete: async (path, signal) =>
      void (await checked(path, await send(path, { method: "DELETE" }, signal))),
    download: async (path, signal) => await downloadFrom(path, signal),
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

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
}

function postOf(body: object) {
  const headers: Record<string, string> = { "content-type": "application/json" };
  return { method: "POST" as const, body: JSON.stringify(body), headers };
}

/** A request that was not answered in time. */
class Silence extends Error {}

/** What a server would say that sends something before a request times out. */
const NOT_YET = () => Response.json({ type: "try_again" });

function isTimeout(response: Response | Error): boolean {
  return response instanceof Response && response.status === 408;
}

async function reasonOf(response: Response | Error): Promise<string> {
  if (!(response instanceof Response)) return `fails: ${causeText(response)}`;
  const said = (await response.text().catch(() => "")).replace(/\s+/g, " ").trim().slice(0, 200);
  return `answers ${response.status}${said === "" ? "" : `: ${said}`}`;
}

/** `fetch` says "fetch failed"; why is in its cause. */
function causeText(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause === undefined ? errorMessage(error) : `${errorMessage(error)} (${errorMessage(cause)})`;
}

/** Timeouts, an account without money, too many requests, and servers that are starting or broken for a moment. */
function isPassing(status: number): boolean {
  return (
    status === 408 || status === 402 || status === 429 || (status >= 500 && status !== 501 && status !== 507)
  );
}

async function refusal(path: string, response: Response): Promise<OsmosisError> {
  const { status } = response;
  const text = (await response.text()).slice(0, 500);
  const message = `The trainer refused ${path} (${status}): ${text}`;
  if (status === 401 || status === 403) {
    return new OsmosisError("AUTH_REQUIRED", message, { hint: "Check the API key of the trainer." });
  }
  if (status === 404) return new OsmosisError("NOT_FOUND", message);
  if (status === 409) return new OsmosisError("CONFLICT", message);
  return new OsmosisError(status < 500 ? "VALIDATION" : "PLATFORM_ERROR", message);
}
