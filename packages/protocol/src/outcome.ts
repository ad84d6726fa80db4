import * as z from "zod";
import type { RolloutResultReply } from "./rollout.ts";

/**
 * How a rollout ended, as the platform counts it. The union is closed: every rollout ends in exactly one of these.
 *
 * - `ok`: the workflow finished and, where grading was asked for, the grader gave a reward.
 * - `truncated`: as `ok`, but the model ran out of tokens or context on the way; the reward is real.
 * - `timeout`: the workflow used up its deadline.
 * - `provider`: the model endpoint failed: unreachable, 5xx, rate limit, bad key.
 * - `agent`: the workflow threw, or produced no usable sample.
 * - `grader`: the grader threw, ran out of time, or left no finite reward.
 * - `sandbox`: the environment of the rollout could not be made or died.
 * - `cancelled`: somebody asked for the end.
 * - `lost`: the rollout server or its lease went away, and nobody knows how it ended.
 */
export const RolloutOutcome = z.enum([
  "ok",
  "truncated",
  "timeout",
  "provider",
  "agent",
  "grader",
  "sandbox",
  "cancelled",
  "lost",
]);
export type RolloutOutcome = z.infer<typeof RolloutOutcome>;

/**
 * True when a reward of this rollout means something. Everything else has no reward at all: a failure is never a reward
 * of 0.
 */
export function isScored(outcome: RolloutOutcome): boolean {
  return outcome === "ok" || outcome === "truncated";
}

/** True when neither model nor user code is to blame, so that running the rollout again may help. */
export function isInfrastructureFailure(outcome: RolloutOutcome): boolean {
  return outcome === "provider" || outcome === "sandbox" || outcome === "lost";
}

/**
 * The outcome that a final result reply speaks of. It cannot see truncation, which only the model endpoint knows.
 *
 * @throws Error when the reply is not final.
 */
export function outcomeOf(reply: RolloutResultReply): RolloutOutcome {
  switch (reply.status) {
    case "success":
      return "ok";
    case "cancelled":
      return reply.err_category === "lease_expired" ? "lost" : "cancelled";
    case "failure":
      return outcomeOfFailure(reply);
    default:
      throw new Error(`A rollout that is ${reply.status} has no outcome yet.`);
  }
}

function outcomeOfFailure(reply: RolloutResultReply): RolloutOutcome {
  if (reply.err_category === "lease_expired") return "lost";
  if (reply.err_phase === "grader") return "grader";
  if (reply.err_category === "timeout") return "timeout";
  if (reply.err_category === "http_error") return "provider";
  return "agent";
}
