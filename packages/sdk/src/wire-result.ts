/** From a result to what travels: the one place where the two forms of the protocol are spelled out. */
import type {
  CompletionCallback,
  GraderCallback,
  RolloutErrorCategory,
  RolloutPhase,
  RolloutRequest,
  RolloutResultReply,
  RolloutStatusReply,
} from "@osmosis/protocol";
import type { CancelReason, RolloutJob, RolloutResult } from "./execution.ts";
import type { RolloutEntry } from "./rollout-registry.ts";
import { sampleToWire } from "./sample.ts";

export function jobOf(
  request: RolloutRequest,
  fields: { rolloutId: string; artifactsDir: string | null },
): RolloutJob {
  return {
    ...fields,
    prompt: request.initial_messages,
    label: request.label ?? null,
    metadata: request.metadata ? deepFreeze(request.metadata) : null,
    chatCompletionsUrl: request.chat_completions_url.replace(/\/+$/, ""),
    apiKey: request.llm_api_key ?? request.controller_api_key ?? null,
    grade:
      (request.grade ?? true) &&
      (!isCallbackForm(request) || typeof request.grader_callback_url === "string"),
    agentTimeoutMs: milliseconds(request.agent_timeout_sec),
    graderTimeoutMs: milliseconds(request.grader_timeout_sec),
  };
}

export function isCallbackForm(request: RolloutRequest): boolean {
  return typeof request.completion_callback_url === "string";
}

/** While the rollout is under way, the reply holds its status alone. */
export function resultReply(entry: RolloutEntry): RolloutResultReply {
  const { rolloutId, label, status, result } = entry;
  const succeeded = result?.status === "success";
  return {
    rollout_id: rolloutId,
    status,
    sample: result?.sample ? sampleToWire(result.sample, label, succeeded) : null,
    ...errorFields(result),
  };
}

export function statusReply(rolloutId: string, entry: RolloutEntry | undefined): RolloutStatusReply {
  const result = entry?.result;
  const reward = result?.status === "success" && !result.sample.removeSample ? result.sample.reward : null;
  return { rollout_id: rolloutId, status: entry?.status ?? "unknown", reward, ...errorFields(result) };
}

/** What the controller is told when the workflow is over; a failed grader is none of its business yet. */
export function completionCallback(rolloutId: string, failed: RolloutResult | undefined): CompletionCallback {
  return {
    status: failed ? "failure" : "success",
    rollout_id: rolloutId,
    extra_fields: null,
    ...errorFields(failed),
  };
}

export function graderCallback(job: RolloutJob, result: RolloutResult): GraderCallback {
  const succeeded = result.status === "success";
  return {
    status: succeeded ? "success" : "failure",
    rollout_id: job.rolloutId,
    sample: result.sample ? sampleToWire(result.sample, job.label, succeeded) : null,
    ...errorFields(result),
  };
}

type ErrorFields = {
  err_message: string | null;
  err_category: RolloutErrorCategory | null;
  err_phase: RolloutPhase | null;
};

function errorFields(result: RolloutResult | undefined): ErrorFields {
  switch (result?.status) {
    case "failure": {
      const { message, category, phase } = result.failure;
      return { err_message: message, err_category: category, err_phase: phase };
    }
    case "cancelled":
      return {
        err_message: CANCEL_MESSAGES[result.reason],
        err_category: result.reason === "lease_expired" ? "lease_expired" : null,
        err_phase: null,
      };
    case "success":
    case undefined:
      return { err_message: null, err_category: null, err_phase: null };
    default:
      return result satisfies never;
  }
}

const CANCEL_MESSAGES: Readonly<Record<CancelReason, string>> = {
  requested: "The rollout was cancelled on request.",
  lease_expired: "Nobody polled for the result in time, so the rollout was cancelled.",
  shutdown: "The rollout server is shutting down.",
};

function milliseconds(seconds: number | null | undefined): number | null {
  return seconds === null || seconds === undefined ? null : seconds * 1000;
}

function deepFreeze<T extends object>(value: T): Readonly<T> {
  for (const item of Object.values(value)) {
    if (typeof item === "object" && item !== null) deepFreeze(item);
  }
  return Object.freeze(value);
}
