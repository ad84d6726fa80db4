import type { ChatAssistantMessage, ChatChunk, ChatResponse, ChatUsage } from "@osmosis/protocol";
import type { ChatFinishReason } from "@osmosis/protocol";

/** What a policy gives back. */
export type ChatReply =
  /** A whole answer, which the gateway sends as JSON or as a stream. */
  | { readonly type: "answer"; readonly answer: ChatAnswer }
  /** A hosted provider's JSON, as it came. */
  | { readonly type: "json"; readonly text: string }
  /** A hosted provider's event stream. */
  | { readonly type: "stream"; readonly events: ReadableStream<Uint8Array> };

export type ChatAnswer = {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly message: ChatAssistantMessage;
  readonly finishReason: ChatFinishReason;
  readonly usage: ChatUsage;
};

/** The answer to a request that does not stream. */
export function chatResponse({ id, created, model, message, finishReason, usage }: ChatAnswer): ChatResponse {
  return {
    id,
    object: "chat.completion",
    created,
    model,
    choices: [{ index: 0, message, finish_reason: finishReason, logprobs: null }],
    usage,
  };
}

/** The same answer as chunks: the whole delta, the end, and the usage where it was asked for. */
export function chatChunks(answer: ChatAnswer, options: { readonly usage: boolean }): ChatChunk[] {
  const { id, created, model, message, finishReason, usage } = answer;
  const head = { id, object: "chat.completion.chunk" as const, created, model };
  const toolCalls = (message.tool_calls ?? []).map((call, index) => ({ ...call, index }));
  return [
    {
      ...head,
      choices: [
        {
          index: 0,
          delta: {
            role: "assistant",
            ...(typeof message.content === "string" ? { content: message.content } : {}),
            ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
          },
          finish_reason: null,
        },
      ],
    },
    { ...head, choices: [{ index: 0, delta: {}, finish_reason: finishReason }] },
    ...(options.usage ? [{ ...head, choices: [], usage }] : []),
  ];
}
