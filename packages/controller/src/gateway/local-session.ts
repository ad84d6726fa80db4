import type { ChatCodec, SampleResult, Sampler } from "@osmosis/engine";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type { ChatAssistantMessage, ChatRequest } from "@osmosis/protocol";
import { deadlineOf } from "../deadline.ts";
import { digestOf, samplingSeedOf } from "../seed.ts";
import { ChatError } from "./chat-error.ts";
import type { ChatReply } from "./chat-reply.ts";
import { createConversationTree } from "./conversation-tree.ts";
import type { CallNode, CallStart } from "./conversation-tree.ts";
import type { ChatSession, OpenRolloutOptions, ProviderFailure, SessionTrace } from "./rollout-session.ts";

export type LocalPolicy = {
  /** Echoed as `model` in answers. */
  readonly name: string;
  readonly sampler: Sampler;
  readonly codec: ChatCodec;
};

/**
 * One rollout on a model whose tokens we sample. What a call samples depends on the rollout's seed, the ids of its
 * prompt, and how often that prompt was asked before; not on the order in which calls happen to arrive, as long as the
 * rollout's tokens suffice.
 */
export function openLocalSession(
  { name, sampler, codec }: LocalPolicy,
  rollout: OpenRolloutOptions,
  created: () => number,
): ChatSession {
  const tree = createConversationTree(codec);
  const repeats = new Map<string, number>();
  const busyConversations = new Set<string>();
  const conversations = new Set<string>();
  let promptTokens = 0;
  let completionTokens = 0;
  let truncated = false;
  let prefixBreaks = 0;
  let weightsVersions: readonly [number, number] | undefined;
  let failure: ProviderFailure | undefined;
  let trace: SessionTrace | undefined;

  async function complete(request: ChatRequest, signal: AbortSignal): Promise<ChatReply> {
    refuseUnsupported(request);
    const tools = request.tools ?? [];
    const budget = (rollout.maxResponseTokens ?? Infinity) - completionTokens;
    if (budget < 1) return outOfTokens(request);
    const start = locate(request);
    const maxTokens = Math.min(budget, tokensLeft(request, start));
    if (start.broke) prefixBreaks += 1;

    const promptKey = digestOf(start.prompt.join());
    const repeat = repeats.get(promptKey) ?? 0;
    repeats.set(promptKey, repeat + 1);
    const callKey = digestOf(rollout.seed, promptKey, repeat);

    const conversation = conversationOf(start.parent);
    busyConversations.add(conversation);
    using bounds = deadlineOf([signal, rollout.signal]);
    const sampled = await sample(start, {
      conversation,
      maxTokens,
      seed: samplingSeedOf(callKey),
      signal: bounds.signal,
      ...samplingOf(request),
    }).finally(() => busyConversations.delete(conversation));

    const { tokens, content, toolCalls, cut } = readAnswer(sampled, request);
    const message: ChatAssistantMessage = {
      role: "assistant",
      content,
      ...(toolCalls.length === 0
        ? {}
        : {
            tool_calls: toolCalls.map((call, index) => ({
              id: `call_${digestOf(callKey, index).slice(0, 24)}`,
              type: "function" as const,
              function: { name: call.name, arguments: call.arguments },
            })),
          }),
    };
    tree.add(start, {
      messages: request.messages,
      tools,
      answer: message,
      sampled: tokens,
      logprobs: sampled.logprobs_T.slice(0, tokens.length),
      conversation,
    });
    promptTokens += start.prompt.length;
    completionTokens += sampled.tokens_T.length;
    const [oldest, newest] = weightsVersions ?? [Infinity, -Infinity];
    weightsVersions = [Math.min(oldest, sampled.weightsVersion), Math.max(newest, sampled.weightsVersion)];
    failure = undefined;
    const tooLong = sampled.stopReason === "length" && !cut;
    if (tooLong) truncated = true;
    return {
      type: "answer",
      answer: {
        id: `chatcmpl-${callKey.slice(0, 32)}`,
        created: created(),
        model: request.model || name,
        message,
        finishReason: tooLong ? "length" : toolCalls.length > 0 ? "tool_calls" : "stop",
        usage: {
          prompt_tokens: start.prompt.length,
          completion_tokens: sampled.tokens_T.length,
          total_tokens: start.prompt.length + sampled.tokens_T.length,
        },
      },
    };
  }

  function locate(request: ChatRequest): CallStart {
    try {
      return tree.locate(request.messages, request.tools ?? []);
    } catch (error) {
      if (!(error instanceof OsmosisError)) throw error;
      throw new ChatError(400, "invalid_value", error.message, { param: "messages", cause: error });
    }
  }

  /** Tokens that the call may sample. */
  function tokensLeft(request: ChatRequest, start: CallStart): number {
    const { length } = start.prompt;
    const { maxPromptTokens = Infinity } = rollout;
    const room = sampler.contextLength - length;
    if (room < 1) {
      throw noRoom(`The prompt has ${length} tokens, the model's context holds ${sampler.contextLength}.`);
    }
    // A prompt that was rendered anew after a break holds answers, too.
    if (start.parent === undefined && !start.broke && length > maxPromptTokens) {
      throw noRoom(`The prompt has ${length} tokens, the run's max_prompt_length is ${maxPromptTokens}.`);
    }
    const asked = request.max_completion_tokens ?? request.max_tokens ?? Infinity;
    return Math.min(asked, rollout.sampling.maxTokens, room);
  }

  /**
   * The answer when the rollout's own tokens are used up: an empty one that says so. A refusal would make agents throw, and
   * a policy that talks too much would never get the low reward that teaches it to stop.
   */
  function outOfTokens(request: ChatRequest): ChatReply {
    truncated = true;
    return {
      type: "answer",
      answer: {
        id: `chatcmpl-${digestOf(rollout.seed, "out of tokens").slice(0, 32)}`,
        created: created(),
        model: request.model || name,
        message: { role: "assistant", content: "" },
        finishReason: "length",
        usage: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
      },
    };
  }

  function noRoom(message: string): ChatError {
    truncated = true;
    return new ChatError(400, "context_length_exceeded", message, { param: "messages" });
  }

  function samplingOf(request: ChatRequest): { temperature: number; topP: number } {
    const { temperature, topP, wins } = rollout.sampling;
    if (wins === "run") return { temperature, topP };
    return { temperature: request.temperature ?? temperature, topP: request.top_p ?? topP };
  }

  /** A call continues its parent's cache, unless a call before it does so already. */
  function conversationOf(parent: CallNode | undefined): string {
    const known = parent?.conversation;
    if (known !== undefined && !busyConversations.has(known) && isNewest(parent)) return known;
    const fresh = `${rollout.rolloutId}/${conversations.size}`;
    conversations.add(fresh);
    return fresh;
  }

  function isNewest(node: CallNode | undefined): boolean {
    return tree.nodes.findLast(({ conversation }) => conversation === node?.conversation) === node;
  }

  async function sample(
    start: CallStart,
    options: Omit<Parameters<Sampler["sample"]>[0], "prompt_T" | "stopTokens">,
  ): Promise<SampleResult> {
    try {
      const result = await sampler.sample({
        ...options,
        prompt_T: start.prompt,
        stopTokens: codec.stopTokens,
      });
      if (trace !== undefined) throw closedError();
      return result;
    } catch (error) {
      if (trace !== undefined) throw closedError();
      if (options.signal?.aborted === true) {
        throw new ChatError(503, "cancelled", "The call was cancelled.", { cause: error });
      }
      // What the sampler calls invalid is in the request, such as a temperature next to 0.
      if (error instanceof OsmosisError && error.code === "VALIDATION") {
        const hint = error.hint === undefined ? "" : ` ${error.hint}`;
        throw new ChatError(400, "invalid_value", error.message + hint, { cause: error });
      }
      failure = { class: "provider", message: `The model could not be sampled: ${errorMessage(error)}` };
      throw new ChatError(503, "sampling_failed", failure.message, { cause: error });
    }
  }

  function readAnswer(
    { tokens_T }: SampleResult,
    request: ChatRequest,
  ): { tokens: readonly number[]; content: string | null; toolCalls: readonly ParsedCall[]; cut: boolean } {
    const stops = [request.stop ?? []].flat().filter((text) => text !== "");
    const stopped = cutAtStop(codec, tokens_T, stops);
    const { content, toolCalls: parsed } = stopped ?? codec.parseAnswer(tokens_T);
    const withTools = (request.tools ?? []).length > 0 && request.tool_choice !== "none";
    const toolCalls = withTools ? parsed : [];
    return {
      tokens: stopped?.tokens ?? tokens_T,
      content: toolCalls.length > 0 ? content : (content ?? ""),
      toolCalls,
      cut: stopped !== undefined,
    };
  }

  function close(): SessionTrace {
    if (trace !== undefined) return trace;
    for (const conversation of conversations) sampler.endConversation(conversation);
    const [weightsVersionMin, weightsVersionMax] = weightsVersions ?? [0, 0];
    trace = {
      sequences: tree.sequences(),
      messages: tree.nodes.at(-1)?.messages ?? [],
      modelCalls: tree.nodes.length,
      promptTokens,
      completionTokens,
      truncated,
      prefixBreaks,
      weightsVersionMin,
      weightsVersionMax,
      ...(failure === undefined ? {} : { failure }),
    };
    return trace;
  }

  return { complete, close };
}

type ParsedCall = { readonly name: string; readonly arguments: string };

function closedError(): ChatError {
  return new ChatError(404, "rollout_closed", "The rollout has ended.");
}

/** The shortest beginning of the answer whose text has a stop string; undefined when none has. */
function cutAtStop(
  codec: ChatCodec,
  tokens: readonly number[],
  stops: readonly string[],
): { tokens: readonly number[]; content: string | null; toolCalls: readonly ParsedCall[] } | undefined {
  if (stops.length === 0) return undefined;
  const firstStop = (length: number): number =>
    Math.min(
      ...stops
        .map((stop) => (codec.parseAnswer(tokens.slice(0, length)).content ?? "").indexOf(stop))
        .filter((index) => index >= 0),
    );
  if (firstStop(tokens.length) === Infinity) return undefined;
  let [without, withStop] = [0, tokens.length];
  while (withStop - without > 1) {
    const middle = (without + withStop) >> 1;
    if (firstStop(middle) === Infinity) without = middle;
    else withStop = middle;
  }
  const kept = tokens.slice(0, withStop);
  const { content, toolCalls } = codec.parseAnswer(kept);
  return { tokens: kept, content: (content ?? "").slice(0, firstStop(withStop)), toolCalls };
}

/** What would be ignored silently is refused instead. */
function refuseUnsupported(request: ChatRequest): void {
  if ((request.n ?? 1) !== 1) throw unsupported("n", "Only n = 1 is supported: a rollout is one sample.");
  const choice = request.tool_choice ?? "auto";
  if (choice !== "auto" && choice !== "none") {
    throw unsupported("tool_choice", "Only auto and none are supported: decoding is not constrained.");
  }
  const format = request.response_format?.type ?? "text";
  if (format !== "text") {
    throw unsupported("response_format", `${format} is not supported: decoding is not constrained.`);
  }
}

function unsupported(param: string, message: string): ChatError {
  return new ChatError(400, "unsupported_value", message, { param });
}
