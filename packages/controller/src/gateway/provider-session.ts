import { ChatErrorBody, ChatResponse, errorMessage } from "@osmosis/protocol";
import type { ChatAssistantMessage, ChatMessage, ChatRequest } from "@osmosis/protocol";
import type { Clock } from "../clock.ts";
import { ChatError } from "./chat-error.ts";
import type { ChatReply } from "./chat-reply.ts";
import { watchEvents } from "./provider-stream.ts";
import { jsonOrUndefined, networkFailure } from "../http-text.ts";
import { parseRetryAfter } from "../retry-after.ts";
import type { ChatSession, OpenRolloutOptions, ProviderFailure, SessionTrace } from "./rollout-session.ts";

export type ProviderPolicy = {
  /** The provider's own name of the model; it replaces what a request names. */
  readonly model: string;
  /** OpenAI-compatible base URL: `/chat/completions` is appended. */
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly fetch: typeof fetch;
};

/** Waits between tries; a `Retry-After` of the provider takes the place of the next one. */
const RETRY_DELAYS_MS = [500, 1000, 2000, 4000];

/** What a finished upstream answer taught us. */
export type UpstreamAnswer = {
  readonly message: ChatAssistantMessage | undefined;
  readonly finishReason: string | undefined;
  readonly promptTokens: number;
  readonly completionTokens: number;
};

/**
 * One rollout on a hosted model. A request passes as it is but for the model's name; rate limits, server errors and lost
 * connections are tried again; what then still fails is the provider's fault, not the agent's, unless the provider says
 * that the request was wrong.
 */
export function openProviderSession(
  policy: ProviderPolicy,
  rollout: OpenRolloutOptions,
  clock: Clock,
): ChatSession {
  let messages: readonly ChatMessage[] = [];
  let modelCalls = 0;
  let promptTokens = 0;
  let completionTokens = 0;
  let truncated = false;
  let failure: ProviderFailure | undefined;

  async function complete(request: ChatRequest, requestSignal: AbortSignal): Promise<ChatReply> {
    const signal = AbortSignal.any([requestSignal, rollout.signal]);
    const addsUsage = request.stream === true && request.stream_options?.include_usage !== true;
    const body = {
      ...request,
      model: policy.model,
      ...(addsUsage ? { stream_options: { ...request.stream_options, include_usage: true } } : {}),
    };
    const response = await sendWithRetries(JSON.stringify(body), signal);
    if (!response.ok) throw await refusal(response);
    const answered = (answer: UpstreamAnswer) => {
      modelCalls += 1;
      promptTokens += answer.promptTokens;
      completionTokens += answer.completionTokens;
      if (answer.finishReason === "length") truncated = true;
      if (answer.message !== undefined) messages = [...request.messages, answer.message];
      failure = undefined;
    };
    if (request.stream === true) {
      if (response.body === null) throw fail(502, "The provider answered without a body.");
      const events = watchEvents(response.body, {
        hideUsage: addsUsage,
        answered,
        broke: (message) => {
          if (!signal.aborted) fail(502, message);
        },
      });
      return { type: "stream", events };
    }
    const text = await response.text().catch((error: unknown) => {
      if (signal.aborted) throw cancelled(error);
      throw fail(502, `The provider's answer broke off: ${errorMessage(error)}`);
    });
    answered(readAnswer(text));
    return { type: "json", text };
  }

  async function sendWithRetries(body: string, signal: AbortSignal): Promise<Response> {
    for (let attempt = 0; ; attempt++) {
      const delay = RETRY_DELAYS_MS[attempt];
      let outcome: Response | string;
      try {
        outcome = await policy.fetch(`${policy.baseUrl.replace(/\/+$/, "")}/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${policy.apiKey}`, "content-type": "application/json" },
          body,
          signal,
          redirect: "error",
        });
      } catch (error) {
        if (signal.aborted) throw cancelled(error);
        outcome = networkFailure(error);
      }
      if (typeof outcome === "string") {
        if (delay === undefined) throw fail(502, `The provider could not be reached: ${outcome}`);
        await sleep(delay, signal);
        continue;
      }
      const again = outcome.status === 429 || outcome.status >= 500;
      if (!again || delay === undefined) return outcome;
      const wait = parseRetryAfter(outcome.headers.get("retry-after")) ?? delay;
      await outcome.body?.cancel();
      await sleep(wait, signal);
    }
  }

  async function sleep(ms: number, signal: AbortSignal): Promise<void> {
    await clock.sleep(ms, signal).catch((error: unknown) => {
      throw cancelled(error);
    });
  }

  /** What the agent is told about an answer that is not 2xx. */
  async function refusal(response: Response): Promise<ChatError> {
    const { status } = response;
    const said = readError(await response.text().catch(() => ""));
    const text = `The provider answered ${status}: ${said.message}`;
    // The agent's own fault: it asked for something that the provider refuses.
    if (status === 400 || status === 413 || status === 422) {
      if (said.code === "context_length_exceeded") truncated = true;
      return new ChatError(
        status,
        said.code ?? "invalid_value",
        text,
        said.param === undefined ? {} : { param: said.param },
      );
    }
    // A refused key is ours, not the one that the agent sent, so it must not look like 401.
    return fail(status === 429 || status >= 500 ? status : 502, text, said.code);
  }

  function fail(status: number, message: string, code = "provider_error"): ChatError {
    failure = { class: "provider", message };
    return new ChatError(status, code, message);
  }

  return {
    complete,
    close(): SessionTrace {
      return {
        sequences: [],
        messages,
        modelCalls,
        promptTokens,
        completionTokens,
        truncated,
        prefixBreaks: 0,
        weightsVersionMin: 0,
        weightsVersionMax: 0,
        ...(failure === undefined ? {} : { failure }),
      };
    },
  };
}

function cancelled(cause: unknown): ChatError {
  return new ChatError(503, "cancelled", "The call was cancelled.", { cause });
}

function readAnswer(text: string): UpstreamAnswer {
  const parsed = ChatResponse.safeParse(jsonOrUndefined(text));
  const choice = parsed.data?.choices[0];
  return {
    message: choice?.message,
    finishReason: choice?.finish_reason ?? undefined,
    promptTokens: parsed.data?.usage?.prompt_tokens ?? 0,
    completionTokens: parsed.data?.usage?.completion_tokens ?? 0,
  };
}

function readError(text: string): { message: string; code?: string; param?: string } {
  const parsed = ChatErrorBody.safeParse(jsonOrUndefined(text));
  if (!parsed.success) return { message: text.slice(0, 300) || "no text" };
  const { message, code, param } = parsed.data.error;
  return { message, ...(code == null ? {} : { code }), ...(param == null ? {} : { param }) };
}
