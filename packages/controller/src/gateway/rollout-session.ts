import type { ChatMessage, ChatRequest, RolloutResultReply, TokenSequence } from "@osmosis/protocol";
import type { ChatReply } from "./chat-reply.ts";

/** How the model calls of one rollout are sampled. */
export type RolloutSampling = {
  /** 0 is greedy. */
  readonly temperature: number;
  readonly topP: number;
  /** Tokens per model call at most; a request may ask for fewer. */
  readonly maxTokens: number;
  /**
   * Who decides about temperature and top_p: `run` ignores what the request says, as training must; `request` takes
   * the run's values as defaults only. A hosted provider always gets the request as it is.
   */
  readonly wins: "run" | "request";
};

export type OpenRolloutOptions = {
  readonly rolloutId: string;
  /** Everything that is sampled depends on this seed and the prompts alone. */
  readonly seed: number;
  readonly sampling: RolloutSampling;
  /** Tokens that the first prompt of a conversation may have. */
  readonly maxPromptTokens?: number;
  /**
   * Tokens that all answers of the rollout may have together; when they are used up, answers are empty. Each of several
   * calls at once may use what was left when it began.
   */
  readonly maxResponseTokens?: number;
  /** Ends every call that is under way. */
  readonly signal: AbortSignal;
};

/** What a rollout did to the model, known when it is closed. */
export type RolloutTrace = {
  /** One for each branch of each conversation; empty for a hosted provider, which shows no tokens. */
  readonly sequences: readonly TokenSequence[];
  /** The conversation as of the last answered call. */
  readonly messages: readonly ChatMessage[];
  /** Calls that were answered. */
  readonly modelCalls: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** True when a token limit or the model's context cut an answer or refused a call. */
  readonly truncated: boolean;
  /** Calls that changed the history instead of extending it. */
  readonly prefixBreaks: number;
  /** Calls that were refused because the request was wrong or too long. */
  readonly refusedCalls: number;
  /** 0 when nothing was sampled. */
  readonly weightsVersionMin: number;
  readonly weightsVersionMax: number;
  /** Set when the last call of the rollout failed for a reason that is not the agent's. */
  readonly failure?: ProviderFailure;
};

export type ProviderFailure = { readonly class: "provider"; readonly message: string };

export type OpenRollout = {
  /** Base URL: clients append `/chat/completions`. */
  readonly chatCompletionsUrl: string;
  readonly apiKey: string;
  /** Where servers of the callback form post the rollout's end. */
  readonly callbacks: RolloutCallbacks;
  /** Ends the calls under way; every later call gets 404. Closing twice gives the same trace. */
  close(): RolloutTrace;
};

export type RolloutCallbacks = {
  readonly completionUrl: string;
  readonly graderUrl: string;
  readonly apiKey: string;
  /** The final reply that the callbacks amount to. `graded`: wait for the grader's after a successful completion. */
  ended(options: { readonly graded: boolean; readonly signal: AbortSignal }): Promise<RolloutResultReply>;
};

/** The policy's side of one rollout. */
export type ChatSession = {
  /** @throws ChatError for everything that the client has to know. */
  complete(request: ChatRequest, signal: AbortSignal): Promise<ChatReply>;
  close(): SessionTrace;
};

/** The part of the trace that the policy knows. */
export type SessionTrace = Omit<RolloutTrace, "refusedCalls">;
