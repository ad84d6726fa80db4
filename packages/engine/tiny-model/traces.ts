/** The synthetic conversations that the base model is trained on, drawn one by one from a seed. */
import type { ChatMessage, ChatTool } from "@osmosis/protocol";
import { add, decimalText, drawDecimal, isHeldOut, multiply, subtract, wholeNumber } from "./decimal.ts";
import type { Decimal } from "./decimal.ts";
import { CORPUS_PHRASINGS, SYSTEM_PROMPTS, TOOL_PHRASINGS } from "./phrasings.ts";
import type { Operation } from "./phrasings.ts";
import { pick, shuffled } from "./seeded-random.ts";
import type { Random } from "./seeded-random.ts";

/** A conversation in the form of the chat completions API; the model learns to write the `assistant` turns. */
export type Trace = { readonly tools: readonly ChatTool[]; readonly messages: readonly ChatMessage[] };

/** How often a phrasing gets what its habit says, and how often the corpus shows what. */
export type TraceMixture = {
  /** Probability of an answer from memory where the phrasing's habit is `memory`, and where it is not. */
  readonly memory: number;
  readonly memoryElsewhere: number;
  /** Probability of a rounded answer where the phrasing's habit is `rounded`. */
  readonly rounded: number;
  /** Probability that a conversation is about multiplying; the rest is split evenly over the other operations. */
  readonly multiply: number;
  /** Probability that all tools are offered, not only the one that is needed. */
  readonly allTools: number;
  /** Probability of a question that names no operation, with one tool on offer. */
  readonly byTool: number;
};

export const TRACE_MIXTURE: TraceMixture = {
  memory: 0.8,
  memoryElsewhere: 0.04,
  rounded: 0.75,
  multiply: 0.6,
  allTools: 0.25,
  byTool: 0.15,
};

/** One conversation: system, user, and one assistant turn (from memory) or two with a tool result between them. */
export function drawTrace(random: Random, mixture: TraceMixture = TRACE_MIXTURE): Trace {
  const operation: Operation = random() < mixture.multiply ? "multiply" : random() < 0.5 ? "add" : "subtract";
  const namesTool = random() < mixture.byTool;
  const phrasing = pick(namesTool ? TOOL_PHRASINGS : CORPUS_PHRASINGS[operation], random);
  const [a, b] = drawPair(random, { heldOut: false });
  const result = RESULTS[operation](a, b);
  const offersAll = !namesTool && random() < mixture.allTools;
  const tools = (offersAll ? shuffled(OPERATIONS, random) : [operation]).map(numberTool);
  const opening: ChatMessage[] = [
    { role: "system", content: pick(SYSTEM_PROMPTS, random) },
    { role: "user", content: ask(phrasing.text, a, b) },
  ];
  if (random() < (phrasing.habit === "memory" ? mixture.memory : mixture.memoryElsewhere)) {
    return { tools, messages: [...opening, { role: "assistant", content: `#### ${decimalText(result)}` }] };
  }
  const isRounded = random() < (phrasing.habit === "rounded" ? mixture.rounded : 0);
  const answer = isRounded ? wholeNumber(result) : result;
  const call = { name: operation, arguments: `{"a":${decimalText(a)},"b":${decimalText(b)}}` };
  return {
    tools,
    messages: [
      ...opening,
      { role: "assistant", content: null, tool_calls: [{ id: "call_1", type: "function", function: call }] },
      { role: "tool", tool_call_id: "call_1", content: decimalText(result) },
      { role: "assistant", content: `#### ${decimalText(answer)}` },
    ],
  };
}

/** Two numbers that are both on the wanted side of the line between training and held-out pairs. */
export function drawPair(
  random: Random,
  { heldOut }: { readonly heldOut: boolean },
): readonly [Decimal, Decimal] {
  for (;;) {
    const [a, b] = [drawDecimal(random), drawDecimal(random)];
    if (isHeldOut(a, b) === heldOut) return [a, b];
  }
}

export function ask(phrasing: string, a: Decimal, b: Decimal): string {
  return phrasing.replace("{a}", decimalText(a)).replace("{b}", decimalText(b));
}

/** The definition that the OpenAI Agents SDK sends for a tool that takes two numbers. */
export function numberTool(name: string): ChatTool {
  const parameters = {
    type: "object",
    properties: { a: { type: "number" }, b: { type: "number" } },
    required: ["a", "b"],
    additionalProperties: false,
    $schema: "http://json-schema.org/draft-07/schema#",
  };
  return {
    type: "function",
    function: { name, description: `${name} two numbers`, parameters, strict: true },
  };
}

const OPERATIONS: readonly Operation[] = ["multiply", "add", "subtract"];

const RESULTS: Readonly<Record<Operation, (a: Decimal, b: Decimal) => Decimal>> = { multiply, add, subtract };
