/**
 * The callback form's outbox: the end of the workflow is posted first, then the reward. The second post does not depend on
 * the first: a reward that was paid for is delivered even when the first could not be.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { CompletionCallback, GraderCallback, TrajectoryReport } from "@osmosis/protocol";
import { CallbackAcknowledgement, errorMessage } from "@osmosis/protocol";

export type CallbackIo = {
  readonly fetch: typeof fetch;
  /** Between 0 and 1. */
  readonly random: () => number;
  readonly log: (text: string) => void;
  /** Aborts when the server stops; deliveries end then. */
  readonly signal: AbortSignal;
};

export type Delivery =
  | { readonly delivered: true; readonly report: TrajectoryReport | undefined }
  | { readonly delivered: false; readonly reason: string };

export type CallbackTarget = { readonly url: string; readonly apiKey: string | null };

const ATTEMPTS = 5;
const REQUEST_TIMEOUT_MS = 10_000;
const LONGEST_DELAY_MS = 8_000;
const LONGEST_RETRY_AFTER_MS = 60_000;
const RETRIED_STATUSES: readonly number[] = [429, 500, 502, 503, 504];

/** Posts `body` until it is acknowledged, at most five times with growing pauses. It never throws. */
export async function deliver(
  target: CallbackTarget,
  body: CompletionCallback | GraderCallback,
  io: CallbackIo,
): Promise<Delivery> {
  let reason = "";
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    const answer = await post(target, body, io);
    if (answer.type === "ok") return { delivered: true, report: answer.report };
    reason = answer.reason;
    if (!answer.retry || attempt === ATTEMPTS || io.signal.aborted) break;
    const backoffMs = Math.min(500 * 2 ** (attempt - 1), LONGEST_DELAY_MS) * (0.5 + io.random() / 2);
    await sleep(answer.retryAfterMs ?? backoffMs, undefined, { signal: io.signal }).catch(() => {});
  }
  io.log(`A callback to ${target.url} was not delivered: ${reason}`);
  return { delivered: false, reason };
}

type Answer =
  | { readonly type: "ok"; readonly report: TrajectoryReport | undefined }
  | {
      readonly type: "failed";
      readonly reason: string;
      readonly retry: boolean;
      readonly retryAfterMs: number | undefined;
    };

async function post(target: CallbackTarget, body: object, io: CallbackIo): Promise<Answer> {
  try {
    const response = await io.fetch(target.url, {
      method: "POST",
      redirect: "manual",
      headers: {
        "content-type": "application/json",
        ...(target.apiKey === null ? {} : { authorization: `Bearer ${target.apiKey}` }),
      },
      body: JSON.stringify(body),
      signal: AbortSignal.any([io.signal, AbortSignal.timeout(REQUEST_TIMEOUT_MS)]),
    });
    const text = await response.text();
    if (response.ok) return { type: "ok", report: reportOf(text, io) };
    return {
      type: "failed",
      reason: `HTTP ${response.status} ${text.slice(0, 200)}`,
      retry: RETRIED_STATUSES.includes(response.status),
      retryAfterMs: retryAfterMs(response.headers.get("retry-after")),
    };
  } catch (error) {
    const cause =
      error instanceof Error && error.cause !== undefined ? ` (${errorMessage(error.cause)})` : "";
    return { type: "failed", reason: errorMessage(error) + cause, retry: true, retryAfterMs: undefined };
  }
}

/** A report that cannot be read costs only itself. */
function reportOf(text: string, io: CallbackIo): TrajectoryReport | undefined {
  try {
    return CallbackAcknowledgement.parse(JSON.parse(text)).trajectory ?? undefined;
  } catch (error) {
    if (text.includes('"trajectory"')) io.log(`A trajectory report cannot be read: ${errorMessage(error)}`);
    return undefined;
  }
}

/** Milliseconds of a `Retry-After` header in seconds; its date form is not used between programs and ignored. */
export function retryAfterMs(header: string | null | undefined): number | undefined {
  if (header === null || header === undefined || header.trim() === "") return undefined;
  const seconds = Number(header);
  return Number.isFinite(seconds) && seconds >= 0
    ? Math.min(seconds * 1000, LONGEST_RETRY_AFTER_MS)
    : undefined;
}
