/**
 * The OpenAI Agents SDK on a rollout's own chat endpoint.
 *
 * The SDK's chat completions model does the translation; what is under it is not its HTTP client but `chat-client.ts`, and
 * every call is kept as the sample of the execution.
 */
import {
  type Agent,
  type AgentOutputType,
  MaxTurnsExceededError,
  type Model,
  ModelBehaviorError,
  type ModelRequest,
  type ModelResponse,
  OpenAIChatCompletionsModel,
  Runner,
  type StreamEvent,
} from "@openai/agents";
import type { ChatChunk, ChatResponse, RawMessage } from "@osmosis/protocol";
import { toAgentInput } from "./agent-input.ts";
import { ChatAccumulator } from "./chat-accumulator.ts";
import { postChat, streamChat } from "./chat-client.ts";
import { ChatEndpointError, isOutOfContext } from "./failure.ts";
import { Conversation } from "./conversation.ts";
import { currentRollout, type RolloutContext } from "./rollout-context.ts";

export type OsmosisModelOptions = {
  /**
   * Fields of the chat completions request, such as `temperature`, `top_p`, `max_tokens` or `stop`. What the agent's own
   * `modelSettings` say goes before them.
   */
  readonly params?: Readonly<Record<string, unknown>>;
  /** True asks the endpoint for streamed answers even where the agent does not stream; some endpoints know no other. */
  readonly streamOnly?: boolean;
};

/** The id that requests carry; the endpoint decides which model answers. */
const MODEL_ID = "osmosis-rollout";

/**
 * A model for `new Agent({ model })` that is the policy of the current rollout. Its calls go to the rollout's endpoint with
 * the rollout's key, stop when the rollout is stopped, and are recorded as the sample. Use one for all agents of an
 * execution.
 *
 * @throws OsmosisError `VALIDATION` outside of `AgentWorkflow.run`, `CONFLICT` when the execution has a sample source.
 */
export function osmosisModel(options: OsmosisModelOptions = {}): Model {
  return new OsmosisModel(currentRollout(), options);
}

class OsmosisModel implements Model {
  readonly conversation = new Conversation("osmosisModel()");
  readonly #inner: OpenAIChatCompletionsModel;

  constructor(rollout: RolloutContext, options: OsmosisModelOptions) {
    rollout.setSampleSource(this.conversation);
    models.set(rollout, this);
    const client = {
      baseURL: rollout.chatCompletionsUrl,
      chat: { completions: { create: createCall(rollout, this.conversation, options) } },
    };
    type Client = ConstructorParameters<typeof OpenAIChatCompletionsModel>[0];
    // The SDK's model uses nothing of its client but `baseURL` and `chat.completions.create`.
    this.#inner = new OpenAIChatCompletionsModel(client as unknown as Client, MODEL_ID);
  }

  getResponse(request: ModelRequest): Promise<ModelResponse> {
    return this.#inner.getResponse(request);
  }

  getStreamedResponse(request: ModelRequest): AsyncIterable<StreamEvent> {
    return this.#inner.getStreamedResponse(request);
  }
}

/** The model of each rollout, so that `runOsmosisAgent` finds the one that the workflow made. */
const models = new WeakMap<RolloutContext, OsmosisModel>();

type ChatBody = Readonly<Record<string, unknown>> & { readonly messages: readonly RawMessage[] };

function createCall(rollout: RolloutContext, conversation: Conversation, options: OsmosisModelOptions) {
  const endpoint = { baseUrl: rollout.chatCompletionsUrl, apiKey: rollout.apiKey };
  const { params = {}, streamOnly = false } = options;

  /** A call that was too long is where the conversation ends; its grader sees what made it so long. */
  function keepRefused(body: ChatBody, error: unknown): void {
    if (conversation.hasAnswer && isOutOfContext(error)) conversation.recordUnanswered(body.messages);
  }

  async function* streamed(body: ChatBody, signal: AbortSignal): AsyncGenerator<ChatChunk, void, undefined> {
    const answer = new ChatAccumulator();
    try {
      for await (const chunk of streamChat(endpoint, body, { signal })) {
        answer.add(chunk);
        yield chunk;
      }
    } catch (error) {
      keepRefused(body, error);
      throw error;
    }
    const response = answer.response();
    if (response) conversation.record(body.messages, response);
  }

  async function whole(body: ChatBody, signal: AbortSignal): Promise<ChatResponse> {
    if (!streamOnly) {
      const response = await postChat(endpoint, body, { signal }).catch((error: unknown) => {
        keepRefused(body, error);
        throw error;
      });
      conversation.record(body.messages, response);
      return response;
    }
    const answer = new ChatAccumulator();
    const asStream = { ...body, stream: true, stream_options: { include_usage: true } };
    for await (const chunk of streamed(asStream, signal)) answer.add(chunk);
    const response = answer.response();
    if (response) return response;
    throw new ChatEndpointError(`${endpoint.baseUrl} streamed an empty answer.`);
  }

  return async (asked: ChatBody, call: { signal?: AbortSignal } = {}) => {
    const signal = call.signal ? AbortSignal.any([rollout.signal, call.signal]) : rollout.signal;
    const given = Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== undefined));
    const body = { ...params, ...given, messages: conversation.restore(asked.messages) };
    return given["stream"] === true ? streamed(body, signal) : whole(body, signal);
  };
}

export type RunOsmosisAgentOptions = OsmosisModelOptions & {
  /** How many model calls the agent may make. */
  readonly maxTurns?: number;
  /** Handed to tools as their run context. */
  readonly context?: unknown;
  /** Ends the run early; the end of the rollout ends it anyway. */
  readonly signal?: AbortSignal;
};

export type OsmosisAgentRun = {
  /** What the agent said last; undefined unless it came to an end of its own. */
  readonly finalOutput: unknown;
  /**
   * `max_turns`, `context_length` (the conversation has outgrown what the endpoint takes) and `model_error` (an answer that
   * the SDK cannot use) are things that a policy does wrong, so they end the run and leave the judgement to the grader.
   */
  readonly ended: "final_output" | "max_turns" | "context_length" | "model_error";
};

/**
 * Runs an agent, and all agents that it hands off to, on the current rollout's endpoint, whatever models they name. Unless
 * the workflow made an `osmosisModel` before, one is made. A call of a tool that does not exist is answered to the model
 * with an error. Tracing is off.
 *
 * @throws ChatEndpointError when the endpoint fails, or refuses the first prompt for its length or any call for another
 * reason, and whatever guardrails throw.
 * @example
 * const agent = new Agent({ name: "calculator", instructions: "Use the tools.", tools: [multiply] });
 * await runOsmosisAgent(agent, ctx.prompt, { maxTurns: 5 });
 */
export async function runOsmosisAgent<Context, Output extends AgentOutputType>(
  agent: Agent<Context, Output>,
  input: string | readonly RawMessage[],
  options: RunOsmosisAgentOptions = {},
): Promise<OsmosisAgentRun> {
  const { maxTurns = 10, context, signal, ...modelOptions } = options;
  const rollout = currentRollout();
  const model = models.get(rollout) ?? new OsmosisModel(rollout, modelOptions);
  const runner = new Runner({
    model,
    tracingDisabled: true,
    toolNotFoundBehavior: "return_error_to_model",
  });
  try {
    const items = typeof input === "string" ? input : toAgentInput(input);
    if (typeof input !== "string") model.conversation.expect(input);
    const result = await runner.run(agent, items, {
      maxTurns,
      signal: signal ? AbortSignal.any([rollout.signal, signal]) : rollout.signal,
      ...(context === undefined ? {} : { context: context as Context }),
    });
    model.conversation.addToolResults(toolResults(result.newItems));
    return { finalOutput: result.finalOutput, ended: "final_output" };
  } catch (error) {
    if (error instanceof MaxTurnsExceededError) return { finalOutput: undefined, ended: "max_turns" };
    // A first prompt that does not fit is no deed of the policy: nothing is there to be graded.
    if (model.conversation.hasAnswer && isOutOfContext(error))
      return { finalOutput: undefined, ended: "context_length" };
    if (error instanceof ModelBehaviorError) return { finalOutput: undefined, ended: "model_error" };
    throw error;
  }
}

function toolResults(items: readonly { type: string }[]): { callId: string; content: string }[] {
  return items.flatMap((item) => {
    if (item.type !== "tool_call_output_item" || !("rawItem" in item)) return [];
    const raw = item.rawItem;
    if (typeof raw !== "object" || raw === null || !("callId" in raw)) return [];
    const output: unknown = "output" in item ? item.output : "";
    return [
      { callId: String(raw.callId), content: typeof output === "string" ? output : JSON.stringify(output) },
    ];
  });
}
