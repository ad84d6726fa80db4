/**
 * The multiply task in one process: what the workspace's agent and grader do through gateway and rollout server, done
 * directly on a sampler. It measures the base model while it is built and in tests.
 */
import type { ChatMessage } from "@osmosis/protocol";
import type { ChatCodec } from "../src/chat-codec.ts";
import type { Sampler } from "../src/service.ts";
import type { MultiplyRow } from "./multiply-rows.ts";
import { numberTool } from "./traces.ts";

/** One agent execution. The arrays run along its one sequence of T tokens. */
export type Episode = {
  readonly row: MultiplyRow;
  readonly tokens_T: readonly number[];
  readonly sampled_T: readonly boolean[];
  readonly logprobs_T: readonly number[];
  readonly toolCalls: number;
  readonly finalText: string;
  readonly reward: 0 | 1;
};

export type EpisodeOptions = { readonly temperature: number; readonly seed: number };

const TOOLS = [numberTool("multiply")];
const MAX_TURNS = 4;
const MAX_ANSWER_TOKENS = 64;

/** Runs the agent loop on one row: sample, answer tool calls, sample again, until an answer has no call. */
export async function runEpisode(
  { sampler, codec }: { readonly sampler: Sampler; readonly codec: ChatCodec },
  row: MultiplyRow,
  { temperature, seed }: EpisodeOptions,
): Promise<Episode> {
  const conversation = `episode-${seed}`;
  const messages: ChatMessage[] = [
    { role: "system", content: row.system_prompt },
    { role: "user", content: row.user_prompt },
  ];
  const tokens = codec.renderPrompt(messages, TOOLS);
  const sampled = tokens.map(() => false);
  const logprobs = tokens.map(() => 0);
  let [toolCalls, finalText] = [0, ""];

  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    const answer = await sampler.sample({
      conversation,
      prompt_T: [...tokens],
      maxTokens: MAX_ANSWER_TOKENS,
      temperature,
      topP: 1,
      stopTokens: codec.stopTokens,
      seed: seed * MAX_TURNS + turn,
    });
    tokens.push(...answer.tokens_T);
    sampled.push(...answer.tokens_T.map(() => true));
    logprobs.push(...answer.logprobs_T);
    const parsed = codec.parseAnswer(answer.tokens_T);
    if (answer.stopReason === "length") break;
    if (parsed.toolCalls.length === 0) {
      finalText = parsed.content ?? "";
      break;
    }
    const calls = parsed.toolCalls.map((call, index) => ({
      id: `call_${turn}_${index}`,
      type: "function" as const,
      function: call,
    }));
    const past: ChatMessage[] = [
      ...messages,
      { role: "assistant", content: parsed.content, tool_calls: calls },
    ];
    const results = calls.map(({ id, function: call }): ChatMessage => ({
      role: "tool",
      tool_call_id: id,
      content: toolResult(call),
    }));
    const continuation = codec.renderContinuation(past, results, TOOLS, { lastTokens: answer.tokens_T });
    if (continuation === "break") throw new Error("The chat template rewrote the past of an episode.");
    messages.splice(0, messages.length, ...past, ...results);
    tokens.push(...continuation);
    sampled.push(...continuation.map(() => false));
    logprobs.push(...continuation.map(() => 0));
    toolCalls += calls.length;
  }
  sampler.endConversation(conversation);
  const reward = grade(finalText, row.ground_truth);
  return { row, tokens_T: tokens, sampled_T: sampled, logprobs_T: logprobs, toolCalls, finalText, reward };
}

/** Share of rows that are solved, one episode each. */
export async function passRate(
  model: { readonly sampler: Sampler; readonly codec: ChatCodec },
  rows: readonly MultiplyRow[],
  { temperature, seed }: EpisodeOptions,
): Promise<{ readonly passRate: number; readonly n: number; readonly episodes: readonly Episode[] }> {
  const episodes = await Promise.all(
    rows.map((row, index) => runEpisode(model, row, { temperature, seed: seed * 100_000 + index })),
  );
  const passed = episodes.filter(({ reward }) => reward === 1).length;
  return { passRate: passed / rows.length, n: rows.length, episodes };
}

/** The product rounded to four decimals, as JavaScript prints it; a sentence for anything that is no multiplication. */
function toolResult({
  name,
  arguments: json,
}: {
  readonly name: string;
  readonly arguments: string;
}): string {
  if (name !== "multiply") return `Tool ${name} not found.`;
  // The codec hands out arguments that are the JSON text of an object.
  const { a, b } = JSON.parse(json) as Record<string, unknown>;
  if (typeof a !== "number" || typeof b !== "number") return "a and b must be numbers.";
  return String(Math.round(a * b * 10_000) / 10_000);
}

function grade(text: string, groundTruth: string): 0 | 1 {
  const answer = [...text.matchAll(/####\s*(-?\d+(?:\.\d+)?)/g)].at(-1)?.[1];
  return answer !== undefined && Math.abs(Number(answer) - Number(groundTruth)) < 0.01 ? 1 : 0;
}
