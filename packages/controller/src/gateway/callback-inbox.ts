import {
  CompletionCallback,
  GraderCallback,
  RolloutStatus,
  isFinalStatus,
  issuesOf,
} from "@osmosis/protocol";
import type { RolloutResultReply } from "@osmosis/protocol";
import { readResultReply } from "../rollout/result-reply.ts";
import { RolloutServerError } from "../rollout/server-client.ts";

/**
 * The callbacks of one rollout: first `completion`, then `grader`; the grader's alone is enough. The first final report
 * of each kind counts, every repeat is acknowledged and otherwise ignored, so that a server never retries in vain.
 *
 * A report that cannot be read is refused, and counts all the same: whoever waited for a better one would wait until the
 * deadline. A success with an unreadable sample is a failure of whoever made it; all else that nobody can read is the server's.
 */
export type CallbackInbox = {
  accept(kind: "completion" | "grader", body: unknown): CallbackAnswer;
  ended(options: { readonly graded: boolean; readonly signal: AbortSignal }): Promise<RolloutResultReply>;
};

export type CallbackAnswer = { readonly status: 200 | 422; readonly body: Record<string, unknown> };

export function createCallbackInbox(rolloutId: string): CallbackInbox {
  const completion = Promise.withResolvers<CompletionCallback>();
  const grader = Promise.withResolvers<GraderCallback>();
  const rubbish = Promise.withResolvers<never>();
  // Of a rollout that nobody waits for.
  rubbish.promise.catch(() => {});

  function settleUnreadable(kind: "completion" | "grader", body: unknown): void {
    if (!hasStatus(body)) return settleRubbish(body);
    const { data: status } = RolloutStatus.safeParse(body.status);
    if (status === undefined || !isFinalStatus(status)) return;
    if ((body.rollout_id ?? rolloutId) !== rolloutId) return;
    if (kind === "grader") {
      const reply = readResultReply(body);
      if (reply?.status === "failure") return grader.resolve(GraderCallback.parse(reply));
    } else if (status === "success") {
      // What it made is told by the grader's report.
      return;
    }
    settleRubbish(body);
  }

  function settleRubbish(body: unknown): void {
    const shown = (JSON.stringify(body) ?? "no JSON").slice(0, 100);
    rubbish.reject(
      new RolloutServerError("refused", `The rollout server reported what cannot be read: ${shown}`),
    );
  }

  return {
    accept(kind, body) {
      const schema = kind === "completion" ? CompletionCallback : GraderCallback;
      const parsed = schema.safeParse(body);
      if (!parsed.success) {
        settleUnreadable(kind, body);
        return { status: 422, body: { detail: issuesOf(parsed.error) } };
      }
      const named = parsed.data.rollout_id;
      if (named !== null && named !== undefined && named !== rolloutId) {
        return { status: 422, body: { detail: `rollout_id is ${named}, the URL says ${rolloutId}` } };
      }
      if (kind === "completion") completion.resolve(CompletionCallback.parse(body));
      else grader.resolve(GraderCallback.parse(body));
      return { status: 200, body: { ok: true } };
    },

    async ended({ graded, signal }) {
      const aborted = Promise.withResolvers<never>();
      const abort = () => aborted.reject(signal.reason);
      signal.addEventListener("abort", abort, { once: true });
      if (signal.aborted) abort();
      try {
        const first = await Promise.race([
          completion.promise,
          grader.promise,
          rubbish.promise,
          aborted.promise,
        ]);
        if ("sample" in first) return graderReply(first);
        if (first.status !== "success" || !graded) return { ...first, sample: null };
        return graderReply(await Promise.race([grader.promise, rubbish.promise, aborted.promise]));
      } finally {
        signal.removeEventListener("abort", abort);
      }
    },
  };
}

/** A grader that reports a failure without a category speaks of itself, since the workflow had succeeded. */
function graderReply(callback: GraderCallback): RolloutResultReply {
  return { ...callback, err_phase: callback.status === "failure" ? (callback.err_phase ?? "grader") : null };
}

/** Whether it tells how far the rollout is, be it that it has not ended yet. */
function hasStatus(body: unknown): body is { readonly status: string; readonly rollout_id?: unknown } {
  return typeof body === "object" && body !== null && "status" in body && typeof body.status === "string";
}
