import type { ChatCodec, SampleRequest, SampleResult, Sampler } from "@osmosis/engine";

/** What the model is to say to exactly this prompt. */
export type ScriptedAnswer = {
  /** The whole prompt as text, special tokens included. */
  readonly prompt: string;
  readonly answer: string;
  /** False leaves out the end token, as an answer that ran into its limit. */
  readonly ends?: boolean;
};

export type ScriptedSampler = Sampler & {
  /** Requests in the order of their arrival. */
  readonly requests: SampleRequest[];
  /** Conversations that were ended. */
  readonly ended: string[];
  /** Answers that nobody asked for. */
  unused(): readonly ScriptedAnswer[];
};

/** A policy that answers the prompts of its script, each entry once, and fails on every other prompt. */
export function scriptedSampler(codec: ChatCodec, script: readonly ScriptedAnswer[]): ScriptedSampler {
  const left = [...script];
  return {
    ...samplerOf(codec, (_request, prompt) => {
      const index = left.findIndex((entry) => entry.prompt === prompt);
      const [entry] = index < 0 ? [] : left.splice(index, 1);
      if (entry === undefined) throw new Error(`unexpected prompt ${JSON.stringify(prompt)}`);
      return entry;
    }),
    unused: () => left,
  };
}

/** A policy made of a function; the log probability of its i-th token is -i/100 - 0.01. */
export function samplerOf(
  codec: ChatCodec,
  answer: (
    request: SampleRequest,
    prompt: string,
  ) =>
    | { answer: string; ends?: boolean; weightsVersion?: number }
    | Promise<{ answer: string; ends?: boolean; weightsVersion?: number }>,
  contextLength = 400,
): ScriptedSampler {
  const requests: SampleRequest[] = [];
  const ended: string[] = [];
  return {
    contextLength,
    requests,
    ended,
    unused: () => [],
    async sample(request): Promise<SampleResult> {
      requests.push(request);
      request.signal?.throwIfAborted();
      const given = await answer(request, codec.decode(request.prompt_T));
      const [stop = 0] = request.stopTokens;
      const whole = [...codec.encode(given.answer), ...(given.ends === false ? [] : [stop])];
      const tokens_T = whole.slice(0, request.maxTokens);
      return {
        tokens_T,
        logprobs_T: tokens_T.map((_, index) => -index / 100 - 0.01),
        stopReason: tokens_T.length === whole.length && given.ends !== false ? "stop" : "length",
        weightsVersion: given.weightsVersion ?? 0,
      };
    },
    endConversation: (conversation) => void ended.push(conversation),
    async [Symbol.asyncDispose]() {},
  };
}
