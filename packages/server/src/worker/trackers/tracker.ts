import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type { z } from "zod";

/** A committed step as a tracker gets it: numbers only. */
export type TrackedStep = {
  readonly step: number;
  readonly metrics: Readonly<Record<string, number>>;
  /** Milliseconds since 1970. */
  readonly committedAt: number;
};

/** What a tracker is told of a run. */
export type TrackedRun = {
  readonly id: string;
  readonly name: string;
  readonly startedAt: number;
  /** Settings by key; no secret, no address. */
  readonly config: Readonly<Record<string, unknown>>;
};

export type TrackedEnd = "finished" | "failed" | "stopped";

/** Somewhere else to see the curves of a run. Calls come one after the other, `open` first. */
export type Tracker = {
  /** `MLflow at http://…`, for the log. */
  readonly name: string;
  /** Makes the run there, or finds the one that an earlier life made; answers the last step that it has, 0 for none. */
  open(signal: AbortSignal): Promise<{ readonly lastStep: number }>;
  /** Steps in order, each once. */
  add(steps: readonly TrackedStep[], signal: AbortSignal): Promise<void>;
  end(status: TrackedEnd, signal: AbortSignal): Promise<void>;
};

/** An answer of a tracker that another try will not change. */
export class TrackerRefused extends Error {
  override readonly name = "TrackerRefused";
}

/**
 * Asks a tracker for JSON.
 *
 * @throws TrackerRefused for an answer that stays as it is; OsmosisError `NETWORK` for one that may change.
 */
export async function ask<T>(
  fetch: typeof globalThis.fetch,
  url: URL,
  options: {
    readonly method: "GET" | "POST";
    readonly authorization: string | undefined;
    readonly body?: unknown;
    readonly schema: z.ZodType<T>;
    readonly signal: AbortSignal;
  },
): Promise<T> {
  const { method, authorization, body, schema, signal } = options;
  let response: Response;
  let text: string;
  try {
    response = await fetch(url, {
      method,
      // A token must not follow to another place.
      redirect: "manual",
      headers: {
        accept: "application/json",
        ...(authorization === undefined ? {} : { authorization }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal,
    });
    text = await boundedText(response, url);
  } catch (error) {
    if (error instanceof TrackerRefused) throw error;
    throw new OsmosisError("NETWORK", `no answer from ${url.origin} (${errorMessage(error)})`, {
      cause: error,
    });
  }
  const said = `${url.pathname} answered ${response.status}: ${text.slice(0, 300)}`;
  if (response.status === 408 || response.status === 429 || response.status >= 500) {
    throw new OsmosisError("NETWORK", said);
  }
  if (!response.ok) throw new TrackerRefused(said);
  const parsed = schema.safeParse(parseJson(text));
  if (!parsed.success)
    throw new TrackerRefused(`${url.pathname} gave an unexpected answer: ${text.slice(0, 300)}`);
  return parsed.data;
}

/** What a tracker answers in a few lines takes no more memory when it goes on without end. */
const LONGEST_ANSWER = 4 * 1024 ** 2;

async function boundedText(response: Response, url: URL): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    // Leaving the loop ends the connection.
    if (text.length > LONGEST_ANSWER) {
      throw new TrackerRefused(`${url.pathname} answers with more than ${LONGEST_ANSWER} characters`);
    }
  }
  return text + decoder.decode();
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // No JSON at all: the schema refuses it.
    return undefined;
  }
}
