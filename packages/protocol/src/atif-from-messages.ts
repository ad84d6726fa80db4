import * as z from "zod";
import {
  ATIF_VERSION,
  type AtifAgentStep,
  type AtifFinalMetrics,
  type AtifMetrics,
  type AtifObservation,
  type AtifStep,
  type AtifToolCall,
  type AtifTrajectory,
} from "./atif.ts";
import { toPlainJson, toPlainObject } from "./plain-json.ts";
import type { RawMessage } from "./rollout.ts";

const Count = z.int().nonnegative().nullish();

const LlmCallMetrics = z.object({
  prompt_tokens: Count,
  completion_tokens: Count,
  cached_tokens: Count,
  cost_usd: z.number().nullish(),
  prompt_token_ids: z.array(z.int()).nullish(),
  completion_token_ids: z.array(z.int()).nullish(),
  logprobs: z.array(z.number()).nullish(),
  model_name: z.string().nullish(),
  extra: z.record(z.string(), z.unknown()).nullish(),
});
type LlmCallMetrics = z.infer<typeof LlmCallMetrics>;

const SampleReport = z.object({
  model_name: z.string().nullish(),
  llm_call_metrics: z.array(LlmCallMetrics).nullish(),
  final_metrics: z
    .object({
      total_prompt_tokens: Count,
      total_completion_tokens: Count,
      total_cached_tokens: Count,
      total_cost_usd: z.number().nullish(),
    })
    .nullish(),
});
type SampleReport = z.infer<typeof SampleReport>;

/** What the controller knows of the model calls; it travels as `trajectory` in the acknowledgement of a callback. */
export const TrajectoryReport = z.object({
  model_name: z.string().nullish(),
  /** One entry speaks of the rollout whatever its key is. */
  samples: z.record(z.string(), SampleReport).nullish(),
});
export type TrajectoryReport = z.infer<typeof TrajectoryReport>;

/** What a controller answers to a callback; it may be any JSON object. */
export const CallbackAcknowledgement = z.object({ trajectory: TrajectoryReport.nullish() });
export type CallbackAcknowledgement = z.infer<typeof CallbackAcknowledgement>;

export type TrajectorySource = {
  readonly rolloutId: string;
  readonly agent: { readonly name: string; readonly version: string };
  /** Chat messages, in order. */
  readonly messages: readonly RawMessage[];
  readonly label?: string | null | undefined;
  readonly reward?: number | null | undefined;
  readonly sampleMetrics?: Readonly<Record<string, unknown>> | undefined;
  readonly sampleExtraFields?: Readonly<Record<string, unknown>> | undefined;
  readonly requestMetadata?: Readonly<Record<string, unknown>> | null | undefined;
  readonly requestExtraFields?: Readonly<Record<string, unknown>> | null | undefined;
  readonly report?: TrajectoryReport | undefined;
};

/**
 * Turns the messages of a rollout into an ATIF document. System and developer messages become system steps, assistant
 * messages agent steps; tool messages join the observation of the agent step before them. Token totals come from the
 * report, else from the usage that the messages carry.
 */
export function atifFromMessages(source: TrajectorySource): AtifTrajectory {
  const steps = stepsOf(source.messages);
  const reports = Object.values(source.report?.samples ?? {});
  const report = reports.length === 1 ? reports[0] : undefined;
  const unmatched = report ? overlayMetrics(steps, report.llm_call_metrics ?? []) : undefined;
  const modelName = report?.model_name ?? source.report?.model_name;
  return {
    schema_version: ATIF_VERSION,
    session_id: source.rolloutId,
    trajectory_id: source.rolloutId,
    agent: { ...source.agent, ...(modelName ? { model_name: modelName } : {}) },
    steps,
    final_metrics: finalMetrics(steps, report),
    extra: {
      osmosis: present({
        rollout_id: source.rolloutId,
        label: source.label,
        reward: source.reward,
        sample_metrics: source.sampleMetrics,
        sample_extra_fields: source.sampleExtraFields,
        request_metadata: source.requestMetadata,
        request_extra_fields: source.requestExtraFields,
        unmatched_llm_call_metrics: unmatched,
        unmatched_sample_reports: reports.length > 1 ? source.report?.samples : undefined,
      }),
    },
  };
}

function stepsOf(messages: readonly RawMessage[]): AtifStep[] {
  const steps: AtifStep[] = [];
  for (const message of messages) {
    const previous = steps.at(-1);
    const role = message["role"];
    if ((role === "tool" || role === "function") && previous?.source === "agent") {
      previous.observation ??= { results: [] };
      previous.observation.results.push(observationResult(message, previous.tool_calls ?? []));
      continue;
    }
    steps.push(stepOf(message, steps.length + 1));
  }
  return steps;
}

function stepOf(message: RawMessage, stepId: number): AtifStep {
  const role = message["role"];
  const timestamp = timestampOf(message);
  const base = {
    step_id: stepId,
    message: textOf(message["content"]),
    ...(timestamp ? { timestamp } : {}),
  };
  switch (role) {
    case "system":
    case "developer":
      return { source: "system", ...base };
    case "user":
      return { source: "user", ...base };
    case "assistant":
      return agentStep(message, base);
    case "tool":
    case "function":
      return {
        source: "system",
        ...base,
        message: "",
        observation: { results: [observationResult(message, [])] },
      };
    default:
      return { source: "user", ...base, extra: { original_role: toPlainJson(role) } };
  }
}

function agentStep(message: RawMessage, base: { step_id: number; message: string }): AtifAgentStep {
  const calls = Array.isArray(message["tool_calls"]) ? message["tool_calls"].map(toolCallOf) : [];
  const metrics = usageMetrics(message);
  const reasoning = message["reasoning_content"];
  return {
    source: "agent",
    ...base,
    ...(typeof reasoning === "string" && reasoning !== "" ? { reasoning_content: reasoning } : {}),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(metrics ? { metrics } : {}),
  };
}

function toolCallOf(call: unknown, index: number): AtifToolCall {
  const fields = objectOf(call);
  const called = objectOf(fields["function"]);
  return {
    tool_call_id: stringOf(fields["id"]) ?? `call_${index}`,
    function_name: stringOf(called["name"]) ?? stringOf(fields["name"]) ?? "",
    arguments: argumentsOf(called["arguments"] ?? fields["arguments"]),
  };
}

function argumentsOf(value: unknown): Record<string, unknown> {
  if (isObject(value)) return toPlainObject(value);
  if (value === undefined || value === null || value === "") return {};
  if (typeof value !== "string") return { _raw: toPlainJson(value) };
  try {
    const parsed: unknown = JSON.parse(value);
    return isObject(parsed) ? toPlainObject(parsed) : { _raw: value };
  } catch {
    return { _raw: value };
  }
}

function observationResult(
  message: RawMessage,
  calls: readonly AtifToolCall[],
): AtifObservation["results"][number] {
  const content = textOf(message["content"]);
  const id = stringOf(message["tool_call_id"]);
  if (id === undefined) return { content };
  return calls.some((call) => call.tool_call_id === id)
    ? { source_call_id: id, content }
    : { content, extra: { tool_call_id: id } };
}

function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (content === undefined || content === null) return "";
  if (Array.isArray(content) && content.every((part) => typeof objectOf(part)["text"] === "string")) {
    return content.map((part) => String(objectOf(part)["text"])).join("\n");
  }
  return JSON.stringify(toPlainJson(content));
}

/** Seconds since 1970 or ISO text, under any of the names that frameworks use. */
function timestampOf(message: RawMessage): string | undefined {
  const extra = objectOf(message["extra"]);
  for (const value of [
    message["created_at"],
    message["timestamp"],
    message["completed_at"],
    extra["timestamp"],
  ]) {
    if (typeof value !== "number" && typeof value !== "string") continue;
    const date = new Date(typeof value === "number" ? value * 1000 : value);
    if (!Number.isNaN(date.getTime())) return date.toISOString();
  }
  return undefined;
}

/** Reads chat and Responses names. */
function usageMetrics(message: RawMessage): AtifMetrics | undefined {
  const response = objectOf(objectOf(message["extra"])["response"]);
  const usage = isObject(message["usage"]) ? message["usage"] : response["usage"];
  if (!isObject(usage)) return undefined;
  const promptDetails = usage["prompt_tokens_details"] ?? usage["input_tokens_details"];
  const completionDetails = usage["completion_tokens_details"] ?? usage["output_tokens_details"];
  const metrics: AtifMetrics = present({
    prompt_tokens: countOf(usage["prompt_tokens"] ?? usage["input_tokens"]),
    completion_tokens: countOf(usage["completion_tokens"] ?? usage["output_tokens"]),
    cached_tokens: countOf(objectOf(promptDetails)["cached_tokens"]),
  });
  const extra = present({
    prompt_tokens_details: promptDetails,
    completion_tokens_details: completionDetails,
  });
  if (Object.keys(extra).length > 0) metrics.extra = toPlainObject(extra);
  return Object.keys(metrics).length > 0 ? metrics : undefined;
}

/** Gives each agent step the metrics of its call; when the counts differ nobody knows which is whose, and all come back. */
function overlayMetrics(
  steps: readonly AtifStep[],
  calls: readonly LlmCallMetrics[],
): readonly LlmCallMetrics[] | undefined {
  const agentSteps = steps.filter((step) => step.source === "agent");
  if (calls.length === 0) return undefined;
  if (agentSteps.length !== calls.length) return calls;
  for (const [i, step] of agentSteps.entries()) {
    const { model_name: modelName, ...metrics } = calls[i] ?? {};
    step.metrics = { ...step.metrics, ...present(metrics) };
    if (modelName) step.model_name = modelName;
  }
  return undefined;
}

function finalMetrics(steps: readonly AtifStep[], report: SampleReport | undefined): AtifFinalMetrics {
  const calls = report?.llm_call_metrics?.length
    ? report.llm_call_metrics
    : steps.flatMap((step) => (step.source === "agent" && step.metrics ? [step.metrics] : []));
  const total = (field: "prompt_tokens" | "completion_tokens" | "cached_tokens" | "cost_usd") => {
    const values = calls.flatMap((call) => call[field] ?? []);
    return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) : undefined;
  };
  return {
    ...present({
      total_prompt_tokens: total("prompt_tokens"),
      total_completion_tokens: total("completion_tokens"),
      total_cached_tokens: total("cached_tokens"),
      total_cost_usd: total("cost_usd"),
    }),
    ...present(report?.final_metrics ?? {}),
    total_steps: steps.length,
  };
}

type Present<T> = { [Key in keyof T]?: Exclude<T[Key], null | undefined> };

/** Without the keys that have no value; objects are copied as plain JSON. */
function present<T extends object>(fields: T): Present<T> {
  const kept = Object.entries(fields).flatMap(([key, value]) =>
    value === null || value === undefined ? [] : [[key, toPlainJson(value)] as const],
  );
  // The entries are those of `fields`, less the empty ones.
  return Object.fromEntries(kept) as Present<T>;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function objectOf(value: unknown): Record<string, unknown> {
  return isObject(value) ? value : {};
}

function stringOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function countOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 ? value : undefined;
}
