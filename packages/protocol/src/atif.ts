/**
 * ATIF v1.7, the document that keeps a trajectory (`trajectory.json`). Unknown keys are refused, numbers are finite, keys
 * without a value are left out. `atif-from-messages.ts` writes it.
 */
import * as z from "zod";
import type { JsonValue } from "./plain-json.ts";

export const ATIF_VERSION = "ATIF-v1.7";

const Extra = z.record(z.string(), z.unknown());
const Count = z.int().nonnegative();

export const AtifToolCall = z.strictObject({
  tool_call_id: z.string(),
  function_name: z.string(),
  /** `{ _raw: text }` when the model wrote something that is not a JSON object. */
  arguments: z.record(z.string(), z.unknown()),
});
export type AtifToolCall = z.infer<typeof AtifToolCall>;

/** What one model call used. */
export const AtifMetrics = z.strictObject({
  prompt_tokens: Count.optional(),
  completion_tokens: Count.optional(),
  cached_tokens: Count.optional(),
  cost_usd: z.number().optional(),
  prompt_token_ids: z.array(z.int()).optional(),
  completion_token_ids: z.array(z.int()).optional(),
  logprobs: z.array(z.number()).optional(),
  extra: Extra.optional(),
});
export type AtifMetrics = z.infer<typeof AtifMetrics>;

export const AtifObservation = z.strictObject({
  results: z.array(
    z.strictObject({
      /** The tool call of the same step that this answers. */
      source_call_id: z.string().optional(),
      content: z.string(),
      extra: Extra.optional(),
    }),
  ),
});
export type AtifObservation = z.infer<typeof AtifObservation>;

const stepFields = {
  /** 1, 2, 3 and so on, without a gap. */
  step_id: z.int().positive(),
  timestamp: z.iso.datetime({ offset: true }).optional(),
  message: z.string(),
  observation: AtifObservation.optional(),
  is_copied_context: z.boolean().optional(),
  extra: Extra.optional(),
};

export const AtifStep = z.discriminatedUnion("source", [
  z.strictObject({ source: z.enum(["system", "user"]), ...stepFields }),
  z.strictObject({
    source: z.literal("agent"),
    ...stepFields,
    model_name: z.string().optional(),
    reasoning_content: z.string().optional(),
    reasoning_effort: z.union([z.string(), z.number()]).optional(),
    tool_calls: z.array(AtifToolCall).optional(),
    metrics: AtifMetrics.optional(),
    llm_call_count: Count.optional(),
  }),
]);
export type AtifStep = z.infer<typeof AtifStep>;
export type AtifAgentStep = Extract<AtifStep, { source: "agent" }>;

export const AtifFinalMetrics = z.strictObject({
  total_prompt_tokens: Count.optional(),
  total_completion_tokens: Count.optional(),
  total_cached_tokens: Count.optional(),
  total_cost_usd: z.number().optional(),
  total_steps: Count,
  extra: Extra.optional(),
});
export type AtifFinalMetrics = z.infer<typeof AtifFinalMetrics>;

export const AtifTrajectory = z
  .strictObject({
    schema_version: z.literal(ATIF_VERSION),
    session_id: z.string(),
    trajectory_id: z.string(),
    agent: z.strictObject({
      name: z.string(),
      version: z.string(),
      model_name: z.string().optional(),
      extra: Extra.optional(),
    }),
    steps: z.array(AtifStep),
    notes: z.string().optional(),
    final_metrics: AtifFinalMetrics,
    extra: Extra.optional(),
  })
  .refine((document) => document.steps.every((step, i) => step.step_id === i + 1), {
    message: "step_id must count 1, 2, 3 and so on",
    path: ["steps"],
  });
export type AtifTrajectory = z.infer<typeof AtifTrajectory>;

/** The text of `trajectory.json`: two spaces, arrays of numbers on one line, ASCII only. */
export function formatAtif(document: AtifTrajectory): string {
  // A parsed or freshly built document holds JSON values only.
  return format(document as JsonValue, "").replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function format(value: JsonValue, indent: string): string {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    if (value.every((item) => typeof item === "number")) return `[${value.join(", ")}]`;
    return `[\n${value.map((item) => inner + format(item, inner)).join(",\n")}\n${indent}]`;
  }
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  if (entries.length === 0) return "{}";
  const lines = entries.map(([key, item]) => `${inner}${JSON.stringify(key)}: ${format(item, inner)}`);
  return `{\n${lines.join(",\n")}\n${indent}}`;
}
