/**
 * The client of a rollout server.
 *
 * Servers take a rollout in one of two forms, lease polling or callbacks, and nothing on the wire says which one a server
 * speaks. So the first admission asks for lease polling; a server that demands a callback URL, or answers without a
 * lease, is remembered to speak the callback form.
 */
import { LEASE_HEADER, RolloutAdmission, RolloutServerHealth, rolloutPath } from "@osmosis/protocol";
import type { RolloutRequest, RolloutResultReply } from "@osmosis/protocol";
import type { Clock } from "../clock.ts";
import { deadlineOf } from "../deadline.ts";
import { jsonOrUndefined, networkFailure } from "../http-text.ts";
import { parseRetryAfter } from "../retry-after.ts";
import { readResultReply } from "./result-reply.ts";

export type RolloutServerOptions = {
  /** `http://127.0.0.1:8000`, without a path. */
  readonly baseUrl: string;
  /** Bearer that the server demands on its routes. */
  readonly apiKey?: string;
  readonly fetch: typeof fetch;
  readonly clock: Clock;
};

/** A rollout server as its driver sees it. */
export type RolloutServer = {
  readonly baseUrl: string;
  /** The form that the server was found to speak. */
  form(): "lease" | "callback";
  /** @throws RolloutServerError `unreachable` or `refused`. */
  health(signal: AbortSignal): Promise<RolloutServerHealth>;
  /**
   * Asks once, and again after a lost connection; a 429 is an answer.
   *
   * @throws RolloutServerError `unreachable` when no answer came, `refused` for an answer that means no.
   */
  admit(request: RolloutRequest, signal: AbortSignal): Promise<AdmissionAnswer>;
  /**
   * One long poll.
   *
   * @throws RolloutServerError `unreachable`, `forgotten` when the server does not know the rollout or its lease,
   * `refused` for an answer that is none.
   */
  poll(rolloutId: string, lease: Lease, signal: AbortSignal): Promise<RolloutResultReply>;
  /** Asks for the end of a rollout; takes 5 seconds at most and never fails. */
  cancel(rolloutId: string): Promise<void>;
  /** Of a server that is started again when it dies. */
  readonly lives?: ServerLives;
};

export type ServerLives = {
  /**
   * Waits while the server is being started. The rollout belongs to the life that follows: the signal aborts with a
   * {@link RolloutServerError} when that has ended.
   */
  enter(rolloutId: string, signal: AbortSignal): Promise<AbortSignal>;
  /** True for a rollout whose life has ended: however many it took, that is one incident. */
  hasTaken(rolloutId: string): boolean;
};

export type Lease = { readonly token: string; readonly waitMs: number };

export type AdmissionAnswer =
  | { readonly type: "lease"; readonly lease: Lease }
  /** Accepted; the end comes by callback. */
  | { readonly type: "accepted" }
  /** The server speaks the other form; nothing runs under the id, or it was told to end it. */
  | { readonly type: "wants_callbacks"; readonly started: boolean }
  | { readonly type: "busy"; readonly retryAfterMs: number }
  /** The id is taken by a rollout that still lives. */
  | { readonly type: "conflict" };

export class RolloutServerError extends Error {
  readonly kind: "unreachable" | "forgotten" | "refused";

  constructor(kind: RolloutServerError["kind"], message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "RolloutServerError";
    this.kind = kind;
  }
}

const NETWORK_RETRY_DELAYS_MS = [100, 500];
const DEFAULT_RETRY_AFTER_MS = 1000;
const ANSWER_TIMEOUT_MS = 30_000;
/** What a poll may take beyond the time that the server holds it open. */
const POLL_MARGIN_MS = 30_000;
const CANCEL_TIMEOUT_MS = 5000;

/** The client of a rollout server; it opens nothing until it is used. */
export function connectRolloutServer(options: RolloutServerOptions): RolloutServer {
  const { apiKey, fetch, clock } = options;
  const baseUrl = options.baseUrl.replace(/\/+$/, "");
  let form: "lease" | "callback" = "lease";

  async function send(path: string, init: RequestInit & { signal: AbortSignal; timeoutMs: number }) {
    const { timeoutMs, signal, ...rest } = init;
    const headers = new Headers(rest.headers);
    if (apiKey !== undefined) headers.set("authorization", `Bearer ${apiKey}`);
    if (rest.body !== undefined) headers.set("content-type", "application/json");
    for (let attempt = 0; ; attempt++) {
      try {
        using deadline = deadlineOf([signal], timeoutMs);
        const response = await fetch(baseUrl + path, {
          ...rest,
          headers,
          signal: deadline.signal,
          redirect: "manual",
        });
        return { status: response.status, headers: response.headers, text: await response.text() };
      } catch (error) {
        if (signal.aborted) throw error;
        const delay = NETWORK_RETRY_DELAYS_MS[attempt];
        if (delay === undefined) {
          throw new RolloutServerError(
            "unreachable",
            `The rollout server at ${baseUrl} gave no answer: ${networkFailure(error)}`,
            { cause: error },
          );
        }
        await clock.sleep(delay, signal);
      }
    }
  }

  return {
    baseUrl,
    form: () => form,

    async health(signal) {
      const { status, text } = await send("/health", { method: "GET", signal, timeoutMs: ANSWER_TIMEOUT_MS });
      const parsed = RolloutServerHealth.safeParse(jsonOrUndefined(text));
      if (status === 200 && parsed.success) return parsed.data;
      throw refused("/health", status, text);
    },

    async admit(request, signal) {
      const { status, text, headers } = await send("/rollout", {
        method: "POST",
        body: JSON.stringify(request),
        signal,
        timeoutMs: ANSWER_TIMEOUT_MS,
      });
      const withCallbacks = request.completion_callback_url != null;
      if (status === 200 || status === 202) {
        if (withCallbacks) return { type: "accepted" };
        const parsed = RolloutAdmission.safeParse(jsonOrUndefined(text));
        if (parsed.success) {
          const { polling_lease_token: token, result_wait_timeout_sec: wait } = parsed.data;
          return { type: "lease", lease: { token, waitMs: wait * 1000 } };
        }
        form = "callback";
        return { type: "wants_callbacks", started: true };
      }
      if (status === 422 && !withCallbacks && text.includes("completion_callback_url")) {
        form = "callback";
        return { type: "wants_callbacks", started: false };
      }
      if (status === 429) {
        return {
          type: "busy",
          retryAfterMs: parseRetryAfter(headers.get("retry-after")) ?? DEFAULT_RETRY_AFTER_MS,
        };
      }
      if (status === 409) return { type: "conflict" };
      throw refused("/rollout", status, text);
    },

    async poll(rolloutId, lease, signal) {
      const path = rolloutPath(rolloutId, "result");
      const { status, text } = await send(path, {
        method: "GET",
        headers: { [LEASE_HEADER]: lease.token },
        signal,
        timeoutMs: lease.waitMs + POLL_MARGIN_MS,
      });
      if (status === 404 || status === 403) {
        throw new RolloutServerError(
          "forgotten",
          `The rollout server no longer knows the rollout (${status}).`,
        );
      }
      const reply = readResultReply(jsonOrUndefined(text));
      if (status === 200 && reply !== undefined) return reply;
      throw refused(path, status, text);
    },

    async cancel(rolloutId) {
      using deadline = deadlineOf([], CANCEL_TIMEOUT_MS);
      await send("/rollout/cancel", {
        method: "POST",
        body: JSON.stringify({ ids: [rolloutId] }),
        signal: deadline.signal,
        timeoutMs: CANCEL_TIMEOUT_MS,
      }).catch(() => undefined);
    },
  };
}

function refused(path: string, status: number, text: string): RolloutServerError {
  const said = text.trim() === "" ? "" : `: ${text.trim().slice(0, 300)}`;
  return new RolloutServerError("refused", `The rollout server answered ${status} to ${path}${said}`);
}
