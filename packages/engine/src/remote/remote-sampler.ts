import { OsmosisError } from "@osmosis/protocol";
import type { SampleRequest, SampleResult, Sampler } from "../service.ts";
import { lost, OtherVocabulary } from "./model-lost.ts";
import type { RemoteSession } from "./service.ts";
import { sampleResult } from "./wire-data.ts";

/** Where samples come from: a sampling session of the trainer, and how many updates its weights have seen. */
export type SamplingTarget = { readonly samplingSession: string; readonly version: number };

export function createRemoteSampler(
  session: RemoteSession,
  parts: { readonly contextLength: number; readonly target: () => SamplingTarget | Promise<SamplingTarget> },
): Sampler {
  const { contextLength } = parts;
  /** Of each sampling session. */
  const lastSeqIds = new Map<string, number>();
  return {
    contextLength,
    async sample(request: SampleRequest): Promise<SampleResult> {
      const room = contextLength - request.prompt_T.length;
      if (room < 1) {
        throw new OsmosisError(
          "VALIDATION",
          `${request.prompt_T.length} tokens leave no room for an answer.`,
        );
      }
      const { samplingSession, version } = await parts.target();
      const seqId = (lastSeqIds.get(samplingSession) ?? 0) + 1;
      lastSeqIds.set(samplingSession, seqId);
      const body = {
        sampling_session_id: samplingSession,
        seq_id: seqId,
        num_samples: 1,
        prompt: { chunks: [{ type: "encoded_text", tokens: request.prompt_T }] },
        sampling_params: {
          max_tokens: Math.min(request.maxTokens, room),
          seed: request.seed,
          stop: request.stopTokens,
          temperature: request.temperature,
          top_k: request.topK ?? -1,
          top_p: request.topP,
        },
      };
      const signal =
        request.signal === undefined ? session.signal : AbortSignal.any([session.signal, request.signal]);
      const pending = await session.wire.start("/asample", { json: body }, signal).catch(lost);
      const result = sampleResult(await pending.result().catch(lost));
      const { vocabSize = Infinity } = session;
      const unknown = result.tokens_T.find((token) => token >= vocabSize);
      // Decoding would leave it out in silence.
      if (unknown !== undefined) throw new OtherVocabulary(unknown, vocabSize);
      return { ...result, weightsVersion: version };
    },
    // The trainer keeps caches as it likes.
    endConversation() {},
    async [Symbol.asyncDispose]() {},
  };
}
