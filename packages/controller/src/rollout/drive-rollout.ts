/**
 * Drives one rollout from its admission to its end. A rollout that goes wrong is data: whatever happens becomes one
 * outcome, here and nowhere else. Only the end of the whole run is thrown.
 *
 * | what happened | outcome |
 * |---|---|
 * | the server has no room until the deadline, or answers what is no answer | `sandbox` |
 * | the server cannot be reached, or forgot the rollout or its lease | `lost` |
 * | no end within agent time + grader time + grace | `timeout` |
 * | failure, and the last model call failed at the provider | `provider` |
 * | failure that the server blames on the model, though the gateway had refused a wrong or too long request | `agent` |
 * | failure of the workflow or the grader | as the server reports it |
 * | success without the reward that was asked for, or with one that is not finite or out of range | `grader` |
 * | success without a sample | `agent` |
 * | success, though a token limit cut an answer or refused a call | `truncated`, and the reward counts |
 * | success | `ok` |
 */
import type {
  DatasetRow,
  RolloutOutcome,
  RolloutRecord,
  RolloutRequest,
  RolloutResultReply,
} from "@osmosis/protocol";
import { isFinalStatus } from "@osmosis/protocol";
import type { Clock } from "../clock.ts";
import { deadlineOf } from "../deadline.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { OpenRollout, RolloutSampling, RolloutTrace } from "../gateway/rollout-session.ts";
import { rolloutIdOf } from "./rollout-id.ts";
import type { RolloutIdentity } from "./rollout-id.ts";
import { recordOf } from "./rollout-record.ts";
import type { RewardRange, RolloutEnd } from "./rollout-record.ts";
import { RolloutServerError } from "./server-client.ts";
import type { AdmissionAnswer, Lease, RolloutServer } from "./server-client.ts";

export type RolloutTimeouts = {
  readonly agentSeconds: number;
  readonly graderSeconds: number;
  /** What the server may take beyond both, for queueing and clean-up. */
  readonly graceSeconds?: number;
};

export type DriveRolloutOptions = {
  readonly server: RolloutServer;
  readonly gateway: Gateway;
  readonly row: DatasetRow;
  readonly identity: Omit<RolloutIdentity, "rowIndex">;
  readonly seed: number;
  readonly sampling: RolloutSampling;
  readonly maxPromptTokens?: number;
  readonly maxResponseTokens?: number;
  readonly timeouts: RolloutTimeouts;
  readonly grade: boolean;
  /** A reward outside of it is a failure of the grader. */
  readonly rewardRange?: RewardRange | undefined;
  readonly clock: Clock;
  readonly signal: AbortSignal;
};

/** Brings one rollout to its end: {@link driveRollout}, or whoever has another worker do it. */
export type DriveRollout = (options: DriveRolloutOptions) => Promise<RolloutRecord>;

/** Beyond that many executions of one id that do not go away, the server is at fault. */
const MAX_ATTEMPTS = 5;
/** A server that answers a poll at once although nothing has changed is not asked again at once. */
const MIN_POLL_INTERVAL_MS = 50;
const DEFAULT_GRACE_SECONDS = 30;

/**
 * The record of one rollout, whatever became of it.
 *
 * @throws the signal's reason when the run ends; the server is then asked to end the rollout.
 */
export async function driveRollout(options: DriveRolloutOptions): Promise<RolloutRecord> {
  const { clock, signal, row } = options;
  const startedAt = clock.now();
  for (let attempt = 0; ; attempt++) {
    const rolloutId = rolloutIdOf({ ...options.identity, rowIndex: row.row_index }, attempt);
    signal.throwIfAborted();
    const attempted = await attemptRollout(rolloutId, options);
    if (attempted === "again" && attempt + 1 < MAX_ATTEMPTS) continue;
    const { end, trace } = attempted === "again" ? { end: stuck(rolloutId), trace: undefined } : attempted;
    return recordOf({ ...options, rolloutId, end, trace, durationMs: clock.now() - startedAt });
  }
}

type Attempt = { readonly end: RolloutEnd; readonly trace: RolloutTrace } | "again";

async function attemptRollout(rolloutId: string, options: DriveRolloutOptions): Promise<Attempt> {
  const { server, gateway, seed, sampling, maxPromptTokens, maxResponseTokens, signal } = options;
  const rollout = gateway.openRollout({
    rolloutId,
    seed,
    sampling,
    signal,
    ...(maxPromptTokens === undefined ? {} : { maxPromptTokens }),
    ...(maxResponseTokens === undefined ? {} : { maxResponseTokens }),
  });
  try {
    const end = await boundary(() => runToEnd(rolloutId, rollout, options), signal);
    if (end === "again") return "again";
    // Whatever did not come to its own end may still be running.
    if (end.type === "failed") await server.cancel(rolloutId);
    return { end, trace: rollout.close() };
  } catch (error) {
    await server.cancel(rolloutId);
    throw error;
  } finally {
    rollout.close();
  }
}

/** The one place where an exception becomes an outcome. */
async function boundary(
  work: () => Promise<RolloutEnd | "again">,
  signal: AbortSignal,
): Promise<RolloutEnd | "again"> {
  try {
    return await work();
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof RolloutEnded) return error.end;
    if (!(error instanceof RolloutServerError)) throw error;
    return failed(error.kind === "refused" ? "sandbox" : "lost", error.message);
  }
}

async function runToEnd(
  rolloutId: string,
  rollout: OpenRollout,
  options: DriveRolloutOptions,
): Promise<RolloutEnd | "again"> {
  const { server, grade } = options;
  const { agentSeconds, graderSeconds, graceSeconds = DEFAULT_GRACE_SECONDS } = options.timeouts;
  const ms = (agentSeconds + graderSeconds + graceSeconds) * 1000;
  const noRoom = () => failed("sandbox", `The rollout server had no room for ${ms / 1000} s.`);
  const life = await within({ ms, ...options }, noRoom, (signal) => server.lives?.enter(rolloutId, signal));
  const limit = { ms, ...options, life };

  const admission = await within(limit, noRoom, (signal) =>
    admit(requestOf(rolloutId, rollout, options), options, signal),
  );
  if (admission.type === "conflict" || admission.type === "wants_callbacks") {
    if (admission.type === "conflict" || admission.started) await server.cancel(rolloutId);
    return "again";
  }
  const reply = await within(
    limit,
    () => failed("timeout", `The rollout did not end within ${limit.ms / 1000} s (agent, grader and grace).`),
    (signal) =>
      admission.type === "lease"
        ? pollToEnd(rolloutId, admission.lease, { ...options, signal })
        : rollout.callbacks.ended({ graded: grade, signal }),
  );
  return { type: "reply", reply };
}

/** Waits while the server has no room. */
async function admit(
  request: RolloutRequest,
  { server, clock }: DriveRolloutOptions,
  signal: AbortSignal,
): Promise<Exclude<AdmissionAnswer, { type: "busy" }>> {
  for (;;) {
    const answer = await server.admit(request, signal);
    if (answer.type !== "busy") return answer;
    await clock.sleep(answer.retryAfterMs, signal);
  }
}

async function pollToEnd(
  rolloutId: string,
  lease: Lease,
  { server, clock, signal }: DriveRolloutOptions,
): Promise<RolloutResultReply> {
  for (;;) {
    const askedAt = clock.now();
    const reply = await server.poll(rolloutId, lease, signal);
    if (isFinalStatus(reply.status)) return reply;
    const rest = MIN_POLL_INTERVAL_MS - (clock.now() - askedAt);
    if (rest > 0) await clock.sleep(rest, signal);
  }
}

function requestOf(rolloutId: string, rollout: OpenRollout, options: DriveRolloutOptions): RolloutRequest {
  const { row, timeouts, grade, server, identity } = options;
  const { completionUrl, graderUrl, apiKey } = rollout.callbacks;
  return {
    rollout_id: rolloutId,
    initial_messages: row.messages,
    label: row.label,
    metadata: row.metadata,
    chat_completions_url: rollout.chatCompletionsUrl,
    llm_api_key: rollout.apiKey,
    grade,
    agent_timeout_sec: timeouts.agentSeconds,
    grader_timeout_sec: timeouts.graderSeconds,
    extra_fields: {
      run_id: identity.runId,
      phase: identity.phase,
      step: identity.step,
      row_index: row.row_index,
      sample_index: identity.sampleIndex,
    },
    ...(server.form() === "lease"
      ? {}
      : {
          completion_callback_url: completionUrl,
          controller_api_key: apiKey,
          ...(grade ? { grader_callback_url: graderUrl } : {}),
        }),
  };
}

/** Thrown to leave work that ran out of time. */
class RolloutEnded extends Error {
  readonly end: RolloutEnd;

  constructor(end: RolloutEnd) {
    super("The rollout has ended.");
    this.end = end;
  }
}

type Limit = {
  readonly ms: number;
  readonly signal: AbortSignal;
  /** Of the server that has the rollout. */
  readonly life?: AbortSignal | undefined;
};

async function within<T>(
  { ms, signal, life }: Limit,
  onExpiry: () => RolloutEnd,
  work: (signal: AbortSignal) => Promise<T> | T,
): Promise<T> {
  using deadline = deadlineOf(life === undefined ? [signal] : [signal, life], ms);
  try {
    return await work(deadline.signal);
  } catch (error) {
    // The connection may break a moment before it is known why.
    if (life?.aborted === true && !signal.aborted) throw life.reason;
    if (deadline.expired()) throw new RolloutEnded(onExpiry());
    throw error;
  }
}

function failed(outcome: RolloutOutcome, error: string): RolloutEnd {
  return { type: "failed", outcome, error };
}

function stuck(rolloutId: string): RolloutEnd {
  return failed("sandbox", `The rollout server neither runs nor gives up the rollout ${rolloutId}.`);
}
