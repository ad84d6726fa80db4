import type { ChatAssistantMessage, ChatChunk, ChatResponse, ChatToolCall } from "@osmosis/protocol";

/** Puts the chunks of a streamed answer together to what the answer would have been without streaming. */
export class ChatAccumulator {
  #first: ChatChunk | undefined;
  #content: string | null = null;
  #reasoning: string | null = null;
  #finishReason: ChatResponse["choices"][number]["finish_reason"] = null;
  #usage: ChatResponse["usage"];
  readonly #toolCalls: ChatToolCall[] = [];

  add(chunk: ChatChunk): void {
    this.#first ??= chunk;
    this.#usage = chunk.usage ?? this.#usage;
    const choice = chunk.choices.find(({ index }) => index === 0);
    if (!choice) return;
    this.#finishReason = choice.finish_reason ?? this.#finishReason;
    const { content, tool_calls: toolCalls, reasoning_content: reasoning } = choice.delta;
    if (typeof content === "string") this.#content = (this.#content ?? "") + content;
    if (typeof reasoning === "string") this.#reasoning = (this.#reasoning ?? "") + reasoning;
    for (const delta of toolCalls ?? []) {
      const call = (this.#toolCalls[delta.index] ??= {
        id: "",
        type: "function",
        function: { name: "", arguments: "" },
      });
      call.id += delta.id ?? "";
      call.function.name += delta.function?.name ?? "";
      call.function.arguments += delta.function?.arguments ?? "";
    }
  }

  /** The answer so far; undefined before the first chunk. */
  response(): ChatResponse | undefined {
    const first = this.#first;
    if (!first) return undefined;
    const toolCalls = this.#toolCalls.filter((call) => call !== undefined);
    const message: ChatAssistantMessage = {
      role: "assistant",
      content: this.#content,
      ...(toolCalls.length > 0 ? { tool_calls: toolCalls } : {}),
      ...(this.#reasoning === null ? {} : { reasoning_content: this.#reasoning }),
    };
    return {
      id: first.id,
      object: "chat.completion",
      created: first.created,
      model: first.model,
      choices: [{ index: 0, message, finish_reason: this.#finishReason }],
      ...(this.#usage ? { usage: this.#usage } : {}),
    };
  }
}
