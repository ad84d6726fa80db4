import { ChatMessage, metricsFault, outcomeOf, rewardFault } from "@osmosis/protocol";
import type {
  DatasetRow,
  RolloutOutcome,
  RolloutRecord,
  RolloutResultReply,
  Sample,
} from "@osmosis/protocol";
import type { RolloutTrace } from "../gateway/rollout-session.ts";
import type { RolloutIdentity } from "./rollout-id.ts";

/** How a rollout ended, before the model's side is known. */
export type RolloutEnd =
  | { readonly type: "reply"; readonly reply: RolloutResultReply }
  | { readonly type: "failed"; readonly outcome: RolloutOutcome; readonly error: string };

/** Smallest and largest reward that counts. */
export type RewardRange = readonly [lowest: number, highest: number];

/** Everything that is kept of a rollout. */
export function recordOf(facts: {
  readonly rolloutId: string;
  readonly identity: Omit<RolloutIdentity, "rowIndex">;
  readonly row: DatasetRow;
  readonly end: RolloutEnd;
  /** Undefined when no execution began. */
  readonly trace: RolloutTrace | undefined;
  readonly grade: boolean;
  readonly rewardRange?: RewardRange | undefined;
  readonly durationMs: number;
}): RolloutRecord {
  const { rolloutId, identity, row, end, trace, durationMs } = facts;
  const sample = end.type === "reply" ? (end.reply.sample ?? undefined) : undefined;
  const { error, ...ended } = classify(end, trace, facts);
  return {
    rollout_id: rolloutId,
    phase: identity.phase,
    step: identity.step,
    row_index: row.row_index,
    sample_index: identity.sampleIndex,
    ...ended,
    error: error === null ? null : shortened(error),
    label: row.label,
    messages: conversationOf(sample, trace, row),
    metrics: metricsOf(sample),
    sequences: [...(trace?.sequences ?? [])],
    weights_version_min: trace?.weightsVersionMin ?? 0,
    weights_version_max: trace?.weightsVersionMax ?? 0,
    prompt_tokens: trace?.promptTokens ?? 0,
    completion_tokens: trace?.completionTokens ?? 0,
    model_calls: trace?.modelCalls ?? 0,
    prefix_breaks: trace?.prefixBreaks ?? 0,
    duration_ms: durationMs,
    trajectory: null,
  };
}

/** The outcome, once the model's side is known. */
function classify(
  end: RolloutEnd,
  trace: RolloutTrace | undefined,
  { grade, rewardRange }: { readonly grade: boolean; readonly rewardRange?: RewardRange | undefined },
): { readonly outcome: RolloutOutcome; readonly reward: number | null; readonly error: string | null } {
  if (end.type === "failed") {
    if (end.outcome === "timeout" && trace?.failure !== undefined) {
      return { outcome: "provider", reward: null, error: trace.failure.message };
    }
    return { outcome: end.outcome, reward: null, error: end.error };
  }
  const { reply } = end;
  const outcome = outcomeOf(reply);
  if (outcome !== "ok") {
    const providers = outcome === "agent" || outcome === "timeout" || outcome === "provider";
    if (providers && trace?.failure !== undefined) {
      return { outcome: "provider", reward: null, error: trace.failure.message };
    }
    // The gateway answered, and refused: the agent asked for what it could not have.
    const own = outcome === "provider" && (trace?.refusedCalls ?? 0) > 0;
    const error = reply.err_message ?? `The rollout ended as ${reply.status}.`;
    return { outcome: own ? "agent" : outcome, reward: null, error };
  }
  const done = trace?.truncated === true ? "truncated" : "ok";
  if (!grade) return { outcome: done, reward: null, error: null };
  if (reply.sample == null) {
    return { outcome: "agent", reward: null, error: "The rollout succeeded but sent no sample." };
  }
  if (reply.sample.remove_sample === true) return { outcome: done, reward: null, error: null };
  const reward = reply.sample.reward ?? null;
  const fault = faultOf(reward, rewardRange) ?? metricsFault(reply.sample.metrics ?? {});
  if (fault !== undefined) return { outcome: "grader", reward: null, error: fault };
  return { outcome: done, reward, error: null };
}

/** What is wrong with a reward; undefined for one that can be learned from, in the range. */
function faultOf(reward: number | null, range: RewardRange | undefined): string | undefined {
  if (reward === null) return "The grader gave no reward.";
  const fault = rewardFault(reward);
  if (fault !== undefined) return fault;
  if (range === undefined || (reward >= range[0] && reward <= range[1])) return undefined;
  return (
    `The grader gave the reward ${reward}, outside of [advanced].reward_range = [${range.join(", ")}]. ` +
    "Mend the grader or the range."
  );
}

/** The sample's own messages where they are chat messages, else what passed through the gateway. */
function conversationOf(
  sample: Sample | undefined,
  trace: RolloutTrace | undefined,
  row: DatasetRow,
): RolloutRecord["messages"] {
  const own = sample?.messages ?? [];
  if (own.length > 0 && own.every((message) => ChatMessage.safeParse(message).success)) return own;
  if (trace !== undefined && trace.messages.length > 0) return [...trace.messages];
  return own.length > 0 ? own : [...row.messages];
}

function metricsOf(sample: Sample | undefined): Record<string, number> {
  const metrics = sample?.metrics ?? {};
  if (metricsFault(metrics) !== undefined) return {};
  return Object.fromEntries(
    Object.entries(metrics).flatMap(([name, value]) => (value === null ? [] : [[name, value]])),
  );
}

/** An error is a line of a list; what somebody threw may be a whole document. */
const LONGEST_ERROR = 4000;

function shortened(error: string): string {
  const more = error.length - LONGEST_ERROR;
  return more <= 0 ? error : `${error.slice(0, LONGEST_ERROR)} … (${more} more characters)`;
}
