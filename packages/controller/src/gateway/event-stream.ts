import type { ChatRequest } from "@osmosis/protocol";
import { errorMessage } from "@osmosis/protocol";
import type { Clock } from "../clock.ts";
import { ChatError, chatErrorBody } from "./chat-error.ts";
import { chatChunks } from "./chat-reply.ts";
import type { ChatReply } from "./chat-reply.ts";

/** An answer that takes longer begins as a stream before its status is known. */
const STATUS_WAIT_MS = 1000;
const PING_INTERVAL_MS = 15_000;

export type EventStreamOptions = {
  readonly request: ChatRequest;
  readonly clock: Clock;
  /** Aborted when the client goes away. */
  readonly hangUp: AbortController;
};

/**
 * The reply as server-sent events, in the form of OpenAI's API, with a comment first and one every 15 seconds while
 * the model works, so that nobody on the way thinks the connection dead.
 *
 * @throws ChatError when the reply failed within a second.
 */
export async function eventStream(reply: Promise<ChatReply>, options: EventStreamOptions): Promise<Response> {
  const { clock, hangUp } = options;
  const early = new AbortController();
  const wait = clock.sleep(STATUS_WAIT_MS, early.signal).catch(() => undefined);
  await Promise.race([reply, wait]).finally(() => early.abort());

  const encoder = new TextEncoder();
  const over = new AbortController();
  const body = new ReadableStream<Uint8Array>({
    async start(controller) {
      const send = (text: string) => {
        if (!over.signal.aborted) controller.enqueue(encoder.encode(text));
      };
      send(": ping\n\n");
      void ping(send, clock, over.signal);
      try {
        for await (const part of eventsOf(await reply, options.request)) {
          if (over.signal.aborted) break;
          controller.enqueue(part);
        }
      } catch (error) {
        const known =
          error instanceof ChatError ? error : new ChatError(500, "internal_error", errorMessage(error));
        send(`event: error\ndata: ${JSON.stringify(chatErrorBody(known))}\n\ndata: [DONE]\n\n`);
      }
      if (!over.signal.aborted) controller.close();
      over.abort();
    },
    cancel(reason) {
      over.abort();
      hangUp.abort(reason);
    },
  });
  return new Response(body, {
    headers: { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" },
  });
}

async function* eventsOf(reply: ChatReply, request: ChatRequest): AsyncGenerator<Uint8Array> {
  if (reply.type === "stream") {
    yield* reply.events;
    return;
  }
  if (reply.type === "json") throw new Error("A call that streams was answered without a stream.");
  const encoder = new TextEncoder();
  const usage = request.stream_options?.include_usage === true;
  for (const chunk of chatChunks(reply.answer, { usage })) {
    yield encoder.encode(`data: ${JSON.stringify(chunk)}\n\n`);
  }
  yield encoder.encode("data: [DONE]\n\n");
}

async function ping(send: (text: string) => void, clock: Clock, over: AbortSignal): Promise<void> {
  while (!over.aborted) {
    await clock.sleep(PING_INTERVAL_MS, over).catch(() => undefined);
    send(": ping\n\n");
  }
}
