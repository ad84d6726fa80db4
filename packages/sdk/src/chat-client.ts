/**
 * Posts to the chat endpoint of a rollout. Node's own HTTP client is used: a training step has hundreds of these calls under
 * way, it costs half of `fetch`, and it does not give up on an answer that takes longer than five minutes.
 */
import { Agent as HttpAgent, type IncomingMessage, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { ChatChunk, ChatErrorBody, ChatResponse, errorMessage } from "@osmosis/protocol";
import { retryAfterMs } from "./callbacks.ts";
import { ChatEndpointError } from "./failure.ts";
import { systemRandom } from "./io.ts";

export type ChatEndpoint = {
  /** Without `/chat/completions`. */
  readonly baseUrl: string;
  readonly apiKey: string | null;
};

export type ChatCallOptions = {
  readonly signal: AbortSignal;
  /** Between 0 and 1. */
  readonly random?: () => number;
};

/** How often a call is repeated that the endpoint did not take on (429 and 503), unless it says that this is in vain. */
const RETRIES = 5;
const LONGEST_ERROR_BYTES = 16 * 1024;

const agents = {
  "http:": new HttpAgent({ keepAlive: true }),
  "https:": new HttpsAgent({ keepAlive: true }),
};

/** @throws ChatEndpointError unless the answer is a chat completion. */
export async function postChat(
  endpoint: ChatEndpoint,
  body: object,
  options: ChatCallOptions,
): Promise<ChatResponse> {
  const response = await open(endpoint, JSON.stringify(body), options);
  const text = await readText(response, endpoint);
  const parsed = ChatResponse.safeParse(parseJson(text));
  if (parsed.success && parsed.data.choices.length > 0) return parsed.data;
  throw new ChatEndpointError(
    `${urlOf(endpoint)} answered something that is no chat completion: ${text.slice(0, 200)}`,
  );
}

/**
 * The chunks of a streamed answer, as they come.
 *
 * @throws ChatEndpointError when the stream breaks off or carries an error.
 */
export async function* streamChat(
  endpoint: ChatEndpoint,
  body: object,
  options: ChatCallOptions,
): AsyncGenerator<ChatChunk, void, undefined> {
  const response = await open(endpoint, JSON.stringify(body), options);
  for await (const data of eventsOf(response, endpoint)) {
    if (data === "[DONE]") return;
    const value = parseJson(data);
    const chunk = ChatChunk.safeParse(value);
    if (chunk.success) {
      yield chunk.data;
      continue;
    }
    const { message, code } = problemOf(value, data);
    throw new ChatEndpointError(`${urlOf(endpoint)} broke off its answer: ${message}`, { code });
  }
  throw new ChatEndpointError(`${urlOf(endpoint)} ended its answer without [DONE].`);
}

/** Sends the request until it is answered with 2xx, or finally refused. */
async function open(
  endpoint: ChatEndpoint,
  body: string,
  options: ChatCallOptions,
): Promise<IncomingMessage> {
  const { signal, random = systemRandom } = options;
  for (let attempt = 0; ; attempt += 1) {
    const response = await send(endpoint, body, signal);
    const status = response.statusCode ?? 0;
    if (status >= 200 && status < 300) return response;
    const text = await readText(response, endpoint);
    const { "x-should-retry": shouldRetry, "retry-after": retryAfter } = response.headers;
    const retry = (status === 429 || status === 503) && shouldRetry !== "false" && attempt < RETRIES;
    if (!retry) {
      const { message, code } = problemOf(parseJson(text), text.slice(0, LONGEST_ERROR_BYTES));
      throw new ChatEndpointError(`${urlOf(endpoint)} answered ${status}: ${message}`, { status, code });
    }
    const backoffMs = 250 * 2 ** attempt * (0.5 + random());
    await sleep(retryAfterMs(retryAfter) ?? backoffMs, undefined, { signal });
  }
}

async function send(endpoint: ChatEndpoint, body: string, signal: AbortSignal): Promise<IncomingMessage> {
  try {
    return await sendOnce(endpoint, body, signal);
  } catch (error) {
    if (!(error instanceof StaleConnection)) throw error;
    return sendOnce(endpoint, body, signal);
  }
}

/** The endpoint closed a kept connection at the moment when it was used again: nothing was answered. */
class StaleConnection extends Error {}

function sendOnce(endpoint: ChatEndpoint, body: string, signal: AbortSignal): Promise<IncomingMessage> {
  const url = parseUrl(endpoint);
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const headers = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    ...(endpoint.apiKey === null ? {} : { authorization: `Bearer ${endpoint.apiKey}` }),
  };
  const request =
    url.protocol === "https:"
      ? httpsRequest(url, { agent: agents["https:"], method: "POST", headers, signal })
      : httpRequest(url, { agent: agents["http:"], method: "POST", headers, signal });
  request.once("response", resolve);
  request.once("error", (error) => {
    if (signal.aborted) return reject(signal.reason);
    const reset = "code" in error && (error.code === "ECONNRESET" || error.code === "EPIPE");
    if (reset && request.reusedSocket) return reject(new StaleConnection());
    reject(new ChatEndpointError(`${url.href} cannot be reached: ${describe(error)}`, { cause: error }));
  });
  request.end(body);
  return promise;
}

async function readText(response: IncomingMessage, endpoint: ChatEndpoint): Promise<string> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of response) chunks.push(chunk as Buffer); // no encoding is set, so chunks are buffers
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ChatEndpointError(`${urlOf(endpoint)} broke off its answer: ${describe(error)}`, {
      cause: error,
    });
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** The data of each server-sent event; comments and other fields are dropped. */
async function* eventsOf(
  response: IncomingMessage,
  endpoint: ChatEndpoint,
): AsyncGenerator<string, void, undefined> {
  response.setEncoding("utf8");
  let rest = "";
  try {
    for await (const chunk of response) {
      const lines = (rest + String(chunk)).split(/\r?\n/);
      rest = lines.pop() ?? "";
      for (const line of lines) if (line.startsWith("data:")) yield line.slice("data:".length).trim();
    }
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ChatEndpointError(`${urlOf(endpoint)} broke off its answer: ${describe(error)}`, {
      cause: error,
    });
  }
}

function parseUrl(endpoint: ChatEndpoint): URL {
  const url = URL.parse(urlOf(endpoint));
  if (url?.protocol === "http:" || url?.protocol === "https:") return url;
  throw new ChatEndpointError(`The chat endpoint "${endpoint.baseUrl}" is no http or https URL.`);
}

function urlOf(endpoint: ChatEndpoint): string {
  return `${endpoint.baseUrl}/chat/completions`;
}

function problemOf(value: unknown, text: string): { message: string; code?: string | undefined } {
  const body = ChatErrorBody.safeParse(value);
  return body.success
    ? { message: body.data.error.message, code: body.data.error.code ?? undefined }
    : { message: text };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A refused connection has its reason in `code` only when several addresses were tried. */
function describe(error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return errorMessage(error) || code;
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && (error.name === "AbortError" || error.name === "TimeoutError");
}
