import { OsmosisError } from "@osmosis/protocol";
import { checkSampleRequest } from "../sampler/check-request.ts";
import type { SampleRequest, SampleResult, Sampler } from "../service.ts";
import { lost, OtherVocabulary } from "./model-lost.ts";
import type { RemoteSession } from "./service.ts";
import { rubbish, sampleResult } from "./wire-data.ts";

/** Where samples come from: a sampling session of the trainer, and how many updates its weights have seen. */
export type SamplingTarget = { readonly samplingSession: string; readonly version: number };

export function createRemoteSampler(
  session: RemoteSession,
  parts: { readonly contextLength: number; readonly target: () => SamplingTarget | Promise<SamplingTarget> },
): Sampler {
  const { contextLength } = parts;
  /** Of each sampling session. */
  const lastSeqIds = new Map<string, number>();
  const { vocabSize = Infinity } = session;

  async function ask(request: SampleRequest): Promise<SampleResult> {
    const { samplingSession, version } = await parts.target();
    const seqId = (lastSeqIds.get(samplingSession) ?? 0) + 1;
    lastSeqIds.set(samplingSession, seqId);
    const maxTokens = Math.min(request.maxTokens, contextLength - request.prompt_T.length);
    const body = {
      sampling_session_id: samplingSession,
      seq_id: seqId,
      num_samples: 1,
      prompt: { chunks: [{ type: "encoded_text", tokens: request.prompt_T }] },
      sampling_params: {
        max_tokens: maxTokens,
        seed: request.seed,
        stop: request.stopTokens,
        temperature: request.temperature,
        top_k: request.topK ?? -1,
        top_p: request.topP,
      },
    };
    const signal =
      request.signal === undefined ? session.signal : AbortSignal.any([session.signal, request.signal]);
    const pending = await session.wire.start("/asample", { json: body }, signal);
    const result = sampleResult(await pending.result());
    if (result.tokens_T.length > maxTokens) {
      throw rubbish(`${result.tokens_T.length} tokens where ${maxTokens} were asked for`);
    }
    return { ...result, weightsVersion: version };
  }

  return {
    contextLength,
    async sample(request) {
      checkSampleRequest(request, { contextLength, vocabSize });
      const result = await ask(request).catch(platformsOwn);
      const unknown = result.tokens_T.find((token) => token >= vocabSize);
      // Decoding would leave it out in silence.
      if (unknown !== undefined) throw new OtherVocabulary(unknown, vocabSize);
      return result;
    },
    // The trainer keeps caches as it likes.
    endConversation() {},
    async [Symbol.asyncDispose]() {},
  };
}

/**
 * The request was checked, so whatever the trainer refuses in it lies between the trainer and us: whose call it was can do
 * nothing about it. `VALIDATION` would say that he could.
 */
function platformsOwn(error: unknown): never {
  if (!(error instanceof OsmosisError) || error.code !== "VALIDATION") return lost(error);
  throw new OsmosisError("PLATFORM_ERROR", error.message, {
    hint: "See the log of the trainer.",
    cause: error,
  });
}
