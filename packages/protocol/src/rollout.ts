/**
 * The wire between whoever drives rollouts (the controller) and a rollout server (user code).
 *
 * A rollout starts with `POST /rollout` and is then in one of the states `queued`, `running`, `grading`, and last
 * `success`, `failure` or `cancelled`. Its result travels in one of two ways, chosen by the request:
 *
 * - Lease polling: the controller long-polls `GET /rollout/{id}/result` with the lease token of the admission. A rollout
 *   whose lease is not renewed by a poll in time is cancelled: its owner is gone.
 * - Callbacks: when `completion_callback_url` is given, the server posts the end of the workflow there, and the reward to
 *   `grader_callback_url`.
 *
 * One rollout is one execution of the workflow, one sample, one reward. What is received tolerates unknown fields.
 */
import * as z from "zod";

export const ROLLOUT_PROTOCOL_VERSION = "0.3";

/** Header of `GET /rollout/{id}/result` that carries the lease token. */
export const LEASE_HEADER = "X-Osmosis-Rollout-Lease";

/** Path of a rollout on its server, with the id percent-encoded. */
export function rolloutPath(rolloutId: string, leaf: "status" | "result"): string {
  return `/rollout/${encodeURIComponent(rolloutId)}/${leaf}`;
}

/** A single path segment: the id is part of URLs and names a folder. */
export const RolloutId = z
  .string()
  .min(1)
  .max(200)
  .refine((id) => id !== "." && id !== ".." && !/[/\\\0]/.test(id), {
    message: "must be a single path segment: no slash, backslash or NUL, not . or ..",
  });

/** A message of any framework. Its shape is the framework's business until somebody reads it. */
export const RawMessage = z.record(z.string(), z.unknown());
export type RawMessage = z.infer<typeof RawMessage>;

const JsonObject = z.record(z.string(), z.unknown());
const SecretText = z.string().min(1);
/** Infinite and NaN are refused; zero and negative mean that the deadline is over already. */
const Seconds = z.number();

/** Body of `POST /rollout`, in its lease-polling and in its callback form. */
export const RolloutRequest = z.object({
  /** May be empty when the task is in `metadata`. */
  initial_messages: z.array(RawMessage),
  /** Base URL: clients append `/chat/completions`. The rollout is part of its path. */
  chat_completions_url: z.string().min(1),
  /** The server makes one when it is missing. */
  rollout_id: RolloutId.nullish(),
  /** Ground truth for the grader. */
  label: z.string().nullish(),
  metadata: JsonObject.nullish(),
  /** Bearer of the chat endpoint; `controller_api_key` stands in for it. */
  llm_api_key: SecretText.nullish(),
  /** False: the workflow runs, the grader does not. */
  grade: z.boolean().nullish(),
  agent_timeout_sec: Seconds.nullish(),
  grader_timeout_sec: Seconds.nullish(),
  /** Copied into the trajectory, otherwise unread. */
  extra_fields: JsonObject.nullish(),
  /** Its presence selects the callback form. */
  completion_callback_url: z.string().min(1).nullish(),
  /** Without it a rollout of the callback form is not graded. */
  grader_callback_url: z.string().min(1).nullish(),
  /** Bearer of the callbacks. */
  controller_api_key: SecretText.nullish(),
});
export type RolloutRequest = z.infer<typeof RolloutRequest>;

export const RolloutStatus = z.enum([
  "queued",
  "running",
  "grading",
  "success",
  "failure",
  "cancelled",
  "unknown",
]);
export type RolloutStatus = z.infer<typeof RolloutStatus>;

/** True when nothing more will happen to the rollout. */
export function isFinalStatus(status: RolloutStatus): status is "success" | "failure" | "cancelled" {
  return status === "success" || status === "failure" || status === "cancelled";
}

/**
 * What kind of thing failed; `err_phase` says where.
 *
 * - `timeout`: a deadline passed, or user code reported a timeout of its own.
 * - `validation_error`: a missing, malformed or non-finite sample, reward or metric.
 * - `http_error`: the chat endpoint could not be reached or refused.
 * - `agent_error`: user code threw.
 * - `lease_expired`: nobody polled in time, so the server cancelled the rollout.
 */
export const RolloutErrorCategory = z.enum([
  "timeout",
  "validation_error",
  "http_error",
  "agent_error",
  "lease_expired",
]);
export type RolloutErrorCategory = z.infer<typeof RolloutErrorCategory>;

export const RolloutPhase = z.enum(["workflow", "grader"]);
export type RolloutPhase = z.infer<typeof RolloutPhase>;

/** What one execution produced. */
export const Sample = z.object({
  messages: z.array(RawMessage),
  label: z.string().nullish().default(null),
  /** Null unless the rollout succeeded and the sample is kept. */
  reward: z.number().nullish().default(null),
  /** True asks the trainer to leave the sample out. */
  remove_sample: z.boolean().nullish().default(false),
  metrics: z.record(z.string(), z.number().nullable()).nullish().default({}),
  extra_fields: JsonObject.nullish().default({}),
});
export type Sample = z.infer<typeof Sample>;

/** Categories grow over time: one that is not known is read as `agent_error`. */
const ReceivedErrorCategory = RolloutErrorCategory.nullish().default(null).catch("agent_error");
const ReceivedPhase = RolloutPhase.nullish().default(null).catch(null);
const Text = z.string().nullish().default(null);

/** 202 reply of `POST /rollout`. The callback form answers with `rollout_id` and `status` only, older servers with `{}`. */
export const RolloutAdmission = z.object({
  rollout_id: z.string(),
  status: RolloutStatus,
  polling_lease_token: z.string(),
  /** How long one poll may be held open. */
  result_wait_timeout_sec: z.number().positive(),
  /** How long a rollout lives without a poll; greater than the wait. */
  polling_lease_timeout_sec: z.number().positive(),
});
export type RolloutAdmission = z.infer<typeof RolloutAdmission>;

/** Reply of `GET /rollout/{id}/result`. Until the status is final, everything else is null. */
export const RolloutResultReply = z.object({
  rollout_id: z.string().nullish().default(null),
  status: RolloutStatus,
  sample: Sample.nullish().default(null),
  err_message: Text,
  err_category: ReceivedErrorCategory,
  /** Which of the user's two classes failed. Servers of the original SDK do not send it. */
  err_phase: ReceivedPhase,
});
export type RolloutResultReply = z.infer<typeof RolloutResultReply>;

/** Reply of `GET /rollout/{id}/status`; an id that was never seen or is forgotten has the status `unknown`. */
export const RolloutStatusReply = z.object({
  rollout_id: z.string(),
  status: RolloutStatus,
  reward: z.number().nullish().default(null),
  err_message: Text,
  err_category: ReceivedErrorCategory,
  err_phase: ReceivedPhase,
});
export type RolloutStatusReply = z.infer<typeof RolloutStatusReply>;

/** Body of `POST /rollout/cancel`: exactly one of the three. */
export const RolloutCancelRequest = z
  .object({
    ids: z.array(z.string()).nullish(),
    prefix: z.string().min(1).nullish(),
    all: z.literal(true).nullish(),
  })
  .refine((body) => [body.ids, body.prefix, body.all].filter((value) => value != null).length === 1, {
    message: "exactly one of ids, prefix and all must be given",
  });
export type RolloutCancelRequest = z.infer<typeof RolloutCancelRequest>;

export const CancelDisposition = z.enum(["cancelled_queued", "cancelled_running", "not_found"]);
export type CancelDisposition = z.infer<typeof CancelDisposition>;

export const RolloutCancelReply = z.object({
  dispositions: z.record(z.string(), CancelDisposition).nullish().default({}),
});
export type RolloutCancelReply = z.infer<typeof RolloutCancelReply>;

/** Reply of `GET /health`. Servers of the original SDK send no `protocol_version` and no `capabilities`. */
export const RolloutServerHealth = z.object({
  status: z.string(),
  /** Set when the process was started with an instance id: tells the asked-for server from another on the same port. */
  instance_id: z.string().nullish().default(null),
  concurrency: z
    .object({
      max_concurrent: z.number().nullish().default(null),
      queued: z.number().nullish().default(null),
      running: z.number().nullish().default(null),
    })
    .nullish()
    .default(null),
  protocol_version: z.string().nullish().default(null),
  capabilities: z.array(z.string()).nullish().default([]),
});
export type RolloutServerHealth = z.infer<typeof RolloutServerHealth>;

/** Body of the post to `completion_callback_url`, sent once, before the grader's. */
export const CompletionCallback = z.object({
  status: RolloutStatus.refine(isFinalStatus, { message: "must be final" }),
  rollout_id: z.string().nullish().default(null),
  err_message: Text,
  err_category: ReceivedErrorCategory,
  err_phase: ReceivedPhase,
  extra_fields: JsonObject.nullish().default(null),
});
export type CompletionCallback = z.infer<typeof CompletionCallback>;

/** Body of the post to `grader_callback_url`. */
export const GraderCallback = z.object({
  status: z.enum(["success", "failure"]),
  rollout_id: z.string().nullish().default(null),
  sample: Sample.nullish().default(null),
  err_message: Text,
  err_category: ReceivedErrorCategory,
  err_phase: ReceivedPhase,
});
export type GraderCallback = z.infer<typeof GraderCallback>;
