import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type {
  ChatAssistantMessage,
  ChatMessage,
  ChatRequest as ChatRequestType,
  ChatResponse,
} from "@osmosis/protocol";
import { ChatRequest, errorMessage } from "@osmosis/protocol";
import { wallClockSeconds } from "./io.ts";

/** A call came that the script does not have, or that it did not expect to look like this. */
export class UnexpectedModelCallError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UnexpectedModelCallError";
  }
}

/** The script has calls that never came. */
export class UnconsumedModelCallsError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UnconsumedModelCallsError";
  }
}

/** One call of the script: what it answers, and optionally what it must have been asked. */
export type ScriptedCall = {
  /** Text of the answer. */
  readonly say?: string;
  /** Tool calls of the answer; ids are made up when they are missing. */
  readonly call?: readonly ScriptedToolCall[] | ScriptedToolCall;
  /** `length` plays an answer that ran out of tokens. */
  readonly finishReason?: "stop" | "length" | "tool_calls";
  /** An HTTP error instead of an answer. */
  readonly fail?: { readonly status: number; readonly message?: string; readonly code?: string };
  /** Never answers: for tests of deadlines and cancellation. */
  readonly hang?: boolean;
  /** Throws when the request is not the expected one. */
  readonly expect?: (request: ChatRequestType) => void;
};

export type ScriptedToolCall = { readonly name: string; readonly arguments: unknown; readonly id?: string };

export type ScriptedModel = AsyncDisposable & {
  /** Base URL: a real HTTP server on the loopback interface. */
  readonly url: string;
  readonly apiKey: string;
  /** What was asked so far, in order. */
  readonly requests: readonly ChatRequestType[];
  /**
   * @throws UnexpectedModelCallError when there was one.
   * @throws UnconsumedModelCallsError when calls of the script are left.
   */
  assertDone(): void;
};

/**
 * A chat endpoint that answers from a script, one entry per call, streamed or not. A call beyond the script is refused with
 * 400 and remembered. Disposing it closes the server without checking; `assertDone` checks.
 *
 * @example
 * await using model = await scriptedModel([{ call: { name: "multiply", arguments: { a: 6, b: 7 } } }, { say: "42" }]);
 */
export async function scriptedModel(script: readonly ScriptedCall[]): Promise<ScriptedModel> {
  const requests: ChatRequestType[] = [];
  const unexpected: string[] = [];
  let next = 0;

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer); // no encoding is set, so chunks are buffers
    const body = ChatRequest.parse(JSON.parse(Buffer.concat(chunks).toString("utf8")));
    requests.push(body);
    const index = next++;
    const scripted = script[index];
    if (!scripted) {
      throw new UnexpectedModelCallError(
        `Model call ${index + 1} came, but the script has ${script.length}. It asked: ${lastMessage(body)}`,
      );
    }
    if (scripted.expect) checkExpectation(scripted.expect, body, index);
    if (scripted.hang) return;
    if (scripted.fail) {
      const { status, message = "scripted failure", code } = scripted.fail;
      return sendError(response, status, message, code);
    }
    const reply = completion(scripted, body, index);
    if (body.stream === true) sendStream(response, reply);
    else sendJson(response, 200, reply);
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => {
      unexpected.push(errorMessage(error));
      sendError(response, 400, errorMessage(error));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return {
    url: `http://127.0.0.1:${port}/v1`,
    apiKey: "scripted-model-key",
    requests,
    assertDone() {
      if (unexpected.length > 0) throw new UnexpectedModelCallError(unexpected.join("\n"));
      if (next >= script.length) return;
      throw new UnconsumedModelCallsError(
        `The script has ${script.length} model calls, but ${next === 0 ? "none" : `only ${next}`} came.`,
      );
    },
    async [Symbol.asyncDispose]() {
      const closed = new Promise<void>((resolve) => void server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

function checkExpectation(
  expect: (request: ChatRequestType) => void,
  body: ChatRequestType,
  index: number,
): void {
  try {
    expect(body);
  } catch (error) {
    throw new UnexpectedModelCallError(
      `Model call ${index + 1} is not what the script expects: ${errorMessage(error)}`,
    );
  }
}

function completion(scripted: ScriptedCall, body: ChatRequestType, index: number): ChatResponse {
  const calls = scripted.call === undefined ? [] : [scripted.call].flat();
  const message: ChatAssistantMessage = {
    role: "assistant",
    content: scripted.say ?? null,
    ...(calls.length === 0
      ? {}
      : {
          tool_calls: calls.map((call, i) => ({
            id: call.id ?? `call_${index + 1}_${i + 1}`,
            type: "function" as const,
            function: {
              name: call.name,
              arguments: typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments),
            },
          })),
        }),
  };
  const promptTokens = words(JSON.stringify(body.messages));
  const completionTokens = words(JSON.stringify(message));
  return {
    id: `chatcmpl-${index + 1}`,
    object: "chat.completion",
    created: wallClockSeconds(),
    model: body.model,
    choices: [
      {
        index: 0,
        message,
        finish_reason: scripted.finishReason ?? (calls.length > 0 ? "tool_calls" : "stop"),
      },
    ],
    usage: {
      prompt_tokens: promptTokens,
      completion_tokens: completionTokens,
      total_tokens: promptTokens + completionTokens,
    },
  };
}

/** Text arrives in two pieces, so that whoever reads the stream must put it together. */
function sendStream(response: ServerResponse, reply: ChatResponse): void {
  const choice = reply.choices[0];
  const text = typeof choice?.message.content === "string" ? choice.message.content : "";
  const half = Math.ceil(text.length / 2);
  const base = { id: reply.id, object: "chat.completion.chunk", created: reply.created, model: reply.model };
  const toolCalls = choice?.message.tool_calls?.map((call, index) => ({ index, ...call }));
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(": ping\n\n");
  const deltas = [
    { role: "assistant", content: text.slice(0, half) },
    { content: text.slice(half), ...(toolCalls ? { tool_calls: toolCalls } : {}) },
  ];
  for (const delta of deltas) {
    response.write(
      `data: ${JSON.stringify({ ...base, choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`,
    );
  }
  const last = {
    ...base,
    choices: [{ index: 0, delta: {}, finish_reason: choice?.finish_reason }],
    usage: reply.usage,
  };
  response.end(`data: ${JSON.stringify(last)}\n\ndata: [DONE]\n\n`);
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

function sendError(response: ServerResponse, status: number, message: string, code?: string): void {
  sendJson(response, status, { error: { message, type: "scripted_model", code: code ?? null } });
}

function lastMessage(body: ChatRequestType): string {
  const message: ChatMessage | undefined = body.messages.at(-1);
  return JSON.stringify(message).slice(0, 300);
}

function words(text: string): number {
  return text.split(/\s+/).length;
}
