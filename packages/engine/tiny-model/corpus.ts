/** Traces as training sequences, tokenised piece by piece exactly as a rollout is: prompt, answer, continuation, answer. */
import type { ChatMessage } from "@osmosis/protocol";
import type { ChatCodec } from "../src/chat-codec.ts";
import type { Datum } from "../src/service.ts";
import type { Trace } from "./traces.ts";

/** A sequence whose assistant tokens, the end of each turn included, have the weight 1 and all others 0. */
export function traceTokens(
  codec: ChatCodec,
  { tools, messages }: Trace,
): { tokens: number[]; weights: number[] } {
  const tokens: number[] = [];
  const weights: number[] = [];
  const append = (ids: readonly number[], weight: number): void => {
    tokens.push(...ids);
    weights.push(...ids.map(() => weight));
  };
  messages.forEach((message, index) => {
    const past = messages.slice(0, index);
    const answered = past.findLastIndex(({ role }) => role === "assistant");
    if (message.role !== "assistant") return;
    if (answered < 0) {
      append(codec.renderPrompt(past, [...tools]), 0);
    } else {
      const continuation = codec.renderContinuation(
        past.slice(0, answered + 1),
        past.slice(answered + 1),
        [...tools],
        { lastTokens: tokens },
      );
      if (continuation === "break") throw new Error("The chat template rewrote the past of a trace.");
      append(continuation, 0);
    }
    append(codec.encode(`${assistantText(message)}<|im_end|>`), 1);
  });
  return { tokens, weights };
}

/** A batch for `forwardBackward`: the loss is the mean over all assistant tokens of the batch. */
export function corpusBatch(codec: ChatCodec, traces: readonly Trace[]): Datum[] {
  const rows = traces.map((trace) => traceTokens(codec, trace));
  const count = rows.reduce((sum, { weights }) => sum + weights.reduce((a, b) => a + b, 0), 0);
  return rows.map(({ tokens, weights }) => {
    const zeros = tokens.map(() => 0);
    return {
      tokens_T: tokens,
      weights_T: weights.map((weight) => weight / count),
      advantages_T: zeros,
      samplerLogprobs_T: zeros,
    };
  });
}

function assistantText(message: Extract<ChatMessage, { role: "assistant" }>): string {
  const calls = (message.tool_calls ?? []).map(
    ({ function: call }) => `<tool_call>{"name":"${call.name}","arguments":${call.arguments}}</tool_call>`,
  );
  return [typeof message.content === "string" ? message.content : "", ...calls].join("");
}
