import type { RawMessage, Sample, TrajectoryReport } from "@osmosis/protocol";
import { metricsFault, OsmosisError, toPlainObject } from "@osmosis/protocol";
import type { SampleSource } from "./rollout-context.ts";
import type { AgentWorkflowResult } from "./workflow.ts";

/** What one execution produced: the conversation, and what is known about it. */
export type RolloutSample = {
  readonly messages: readonly RawMessage[];
  readonly metrics: Readonly<Record<string, number>>;
  readonly extraFields: Readonly<Record<string, unknown>>;
};

export type ProducedSample = RolloutSample & { readonly report: TrajectoryReport | undefined };

export type GradedSample = ProducedSample & {
  /** Null when grading was not asked for or did not come to an end. */
  readonly reward: number | null;
  readonly removeSample: boolean;
};

/**
 * Reads the sample from what `run` returned, else from the source that was registered meanwhile.
 *
 * @throws OsmosisError `VALIDATION` when there is no sample, more than one, or one that is malformed.
 */
export function sampleOf(
  returned: AgentWorkflowResult,
  source: SampleSource | undefined,
  workflowName: string,
): ProducedSample {
  const output = outputOf(returned, workflowName);
  const sourced = output.messages === undefined ? source?.sample() : undefined;
  const messages = output.messages ?? sourced?.messages;
  if (messages === undefined) {
    throw invalid(
      `${workflowName}.run returned nothing, and no model integration recorded a conversation.`,
      "Return the message list, or call the model through an integration such as osmosisModel().",
    );
  }
  if (messages.length === 0) {
    throw invalid(
      `${workflowName}.run produced a sample without messages.`,
      source ? "No model call was made." : "Return the whole conversation, the prompt included.",
    );
  }
  return {
    messages: messages.map((message, i) => messageOf(message, i, workflowName)),
    metrics: output.metrics,
    extraFields: output.info === undefined ? {} : { info: output.info },
    report: sourced?.report,
  };
}

type Output = {
  readonly messages: readonly unknown[] | undefined;
  readonly metrics: Readonly<Record<string, number>>;
  readonly info: unknown;
};

const OUTPUT_KEYS: readonly string[] = ["messages", "metrics", "info"];

function outputOf(returned: unknown, workflowName: string): Output {
  if (returned === undefined || returned === null) {
    return { messages: undefined, metrics: {}, info: undefined };
  }
  if (Array.isArray(returned)) {
    refuseSeveral(returned, workflowName);
    return { messages: returned, metrics: {}, info: undefined };
  }
  if (typeof returned !== "object") {
    throw invalid(
      `${workflowName}.run returned a ${typeof returned}.`,
      "Return a message list, { messages, metrics }, or nothing.",
    );
  }
  const fields: Record<string, unknown> = { ...returned };
  const unknown = Object.keys(fields).find((key) => !OUTPUT_KEYS.includes(key));
  if (unknown !== undefined) {
    throw invalid(
      `${workflowName}.run returned an object with the key "${unknown}".`,
      `Known keys are ${OUTPUT_KEYS.join(", ")}; anything else belongs into info.`,
    );
  }
  const messages = fields["messages"] ?? undefined;
  if (messages !== undefined && !Array.isArray(messages)) {
    throw invalid(`${workflowName}.run returned messages that are not a list.`, "Return a list of messages.");
  }
  if (messages) refuseSeveral(messages, workflowName);
  return { messages, metrics: checkMetrics(fields["metrics"], `${workflowName}.run`), info: fields["info"] };
}

function refuseSeveral(messages: readonly unknown[], workflowName: string): void {
  const samples = messages.filter((item) => Array.isArray(item) || (isObject(item) && "messages" in item));
  if (samples.length === 0) return;
  throw invalid(
    `${workflowName}.run returned ${samples.length} ${samples.length === 1 ? "sample in a list" : "samples"}.`,
    "One execution is one sample: return one list of messages.",
  );
}

function messageOf(message: unknown, index: number, workflowName: string): RawMessage {
  if (isObject(message)) return toPlainObject(message);
  throw invalid(
    `Message ${index} of the sample of ${workflowName} is not an object.`,
    'Messages look like { role: "assistant", content: "…" }.',
  );
}

/**
 * The metrics as they are.
 *
 * @throws OsmosisError `VALIDATION` when one of them is not a finite number, or beyond what a run takes.
 */
export function checkMetrics(metrics: unknown, giver: string): Record<string, number> {
  if (metrics === undefined || metrics === null) return {};
  if (!isObject(metrics))
    throw invalid(`${giver} gave metrics that are not an object.`, "Use { name: number }.");
  const checked: Record<string, number> = {};
  for (const [name, value] of Object.entries(metrics)) {
    if (typeof value !== "number" || !Number.isFinite(value)) {
      throw invalid(
        `${giver} gave the metric "${name}" the value ${String(value)}.`,
        "Metrics are finite numbers.",
      );
    }
    checked[name] = value;
  }
  const fault = metricsFault(checked);
  if (fault !== undefined) {
    throw invalid(
      `${giver} gave metrics that nobody can use. ${fault}`,
      "Each metric becomes a curve of the run.",
    );
  }
  return checked;
}

/** The sample as it travels. A reward travels only with a success that is not to be removed. */
export function sampleToWire(sample: GradedSample, label: string | null, succeeded: boolean): Sample {
  return {
    // `messages` were made plain when the sample was.
    messages: [...sample.messages],
    label,
    reward: succeeded && !sample.removeSample ? sample.reward : null,
    remove_sample: sample.removeSample,
    metrics: { ...sample.metrics },
    extra_fields: toPlainObject(sample.extraFields),
  };
}

/** The text of the last assistant message, or "" when there is none: what most graders look at. */
export function lastAssistantText(messages: readonly RawMessage[]): string {
  const last = messages.findLast((message) => message["role"] === "assistant");
  return last ? messageText(last) : "";
}

/** The text of one message: its string, or its text parts joined with newlines. */
export function messageText(message: RawMessage): string {
  const content = message["content"];
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content
    .flatMap((part: unknown) => (isObject(part) && typeof part["text"] === "string" ? [part["text"]] : []))
    .join("\n");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function invalid(message: string, hint: string): OsmosisError {
  return new OsmosisError("VALIDATION", message, { hint });
}
