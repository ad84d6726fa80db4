import { ChatChunk, errorMessage } from "@osmosis/protocol";
import type { ChatAssistantMessage, ChatToolCall } from "@osmosis/protocol";
import { ChatError, chatErrorBody } from "./chat-error.ts";
import type { UpstreamAnswer } from "./provider-session.ts";

export type WatchOptions = {
  /** Leaves out the chunk that only holds the usage, which the client did not ask for. */
  readonly hideUsage: boolean;
  /** The stream came to its end. */
  readonly answered: (answer: UpstreamAnswer) => void;
  /** The stream ended with an error or without its end mark. */
  readonly broke: (message: string) => void;
};

/**
 * Passes a provider's event stream on, event by event, and reads along: exactly one of the two callbacks is called,
 * none when the reader cancels. A stream that breaks off ends in an error event, never in silence.
 */
export function watchEvents(
  upstream: ReadableStream<Uint8Array>,
  options: WatchOptions,
): ReadableStream<Uint8Array> {
  const reader = upstream.getReader();
  const decoder = new TextDecoder();
  const encoder = new TextEncoder();
  const collected = collectChunks();
  let pending = "";
  let over = false;

  function fail(controller: ReadableStreamDefaultController<Uint8Array>, message: string): void {
    over = true;
    options.broke(message);
    const body = JSON.stringify(chatErrorBody(new ChatError(502, "provider_error", message)));
    controller.enqueue(encoder.encode(`event: error\ndata: ${body}\n\ndata: [DONE]\n\n`));
    controller.close();
  }

  /** Passes one event on, unless it is to be hidden. */
  function pass(event: string, controller: ReadableStreamDefaultController<Uint8Array>): void {
    const data = event
      .split("\n")
      .filter((line) => line.startsWith("data:"))
      .map((line) => line.slice(5).trimStart())
      .join("\n");
    if (data === "[DONE]") {
      over = true;
      options.answered(collected.answer());
      controller.enqueue(encoder.encode("data: [DONE]\n\n"));
      controller.close();
      return;
    }
    const kind = collected.add(data);
    if (kind === "error") fail(controller, `The provider's stream ended in an error: ${data.slice(0, 300)}`);
    else if (!(kind === "usage" && options.hideUsage)) controller.enqueue(encoder.encode(`${event}\n\n`));
  }

  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        // A pull that enqueues nothing is not repeated by the stream, so it goes on until it has something.
        for (let passed = false; !passed && !over;) {
          const { done, value } = await reader.read();
          if (over) return;
          pending += done ? `${decoder.decode()}\n\n` : decoder.decode(value, { stream: true });
          const events = pending.replaceAll("\r\n", "\n").split("\n\n");
          pending = events.pop() ?? "";
          for (const event of events) {
            if (over || event.trim() === "") continue;
            pass(event, controller);
            passed = true;
          }
          if (done && !over) fail(controller, "The provider's stream broke off.");
          passed &&= (controller.desiredSize ?? 0) <= 0;
        }
      } catch (error) {
        if (!over) fail(controller, `The provider's stream broke off: ${errorMessage(error)}`);
      } finally {
        // The rest of a finished stream is not read: the connection must not hang on it.
        if (over) void reader.cancel().catch(() => undefined);
      }
    },
    async cancel(reason) {
      over = true;
      await reader.cancel(reason);
    },
  });
}

/** Puts the deltas of a stream together. */
function collectChunks(): {
  add(data: string): "delta" | "usage" | "error" | "other";
  answer(): UpstreamAnswer;
} {
  let content = "";
  const toolCalls: ChatToolCall[] = [];
  let finishReason: string | undefined;
  let usage = { promptTokens: 0, completionTokens: 0 };
  return {
    add(data) {
      let json: unknown;
      try {
        json = JSON.parse(data);
      } catch {
        return "other";
      }
      if (typeof json === "object" && json !== null && "error" in json && json.error != null) return "error";
      const parsed = ChatChunk.safeParse(json);
      if (!parsed.success) return "other";
      const { choices, usage: counted } = parsed.data;
      if (counted != null) {
        usage = { promptTokens: counted.prompt_tokens, completionTokens: counted.completion_tokens };
      }
      const choice = choices[0];
      if (choice === undefined) return counted == null ? "other" : "usage";
      content += choice.delta.content ?? "";
      finishReason = choice.finish_reason ?? finishReason;
      for (const delta of choice.delta.tool_calls ?? []) {
        const call = (toolCalls[delta.index] ??= {
          id: delta.id ?? "",
          type: "function",
          function: { name: "", arguments: "" },
        });
        call.function.name += delta.function?.name ?? "";
        call.function.arguments += delta.function?.arguments ?? "";
      }
      return "delta";
    },
    answer() {
      const message: ChatAssistantMessage = {
        role: "assistant",
        content,
        ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls.filter((call) => call !== undefined) }),
      };
      return { message, finishReason, ...usage };
    },
  };
}
