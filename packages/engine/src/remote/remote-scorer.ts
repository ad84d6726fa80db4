import { decodeSampleResponse, OsmosisError, TinkerSampleResponse } from "@osmosis/protocol";
import type { Scorer, ScoredSequence } from "../service.ts";
import type { RemoteSession } from "./service.ts";
import { readAnswer, rubbish } from "./wire-data.ts";

/** Sequences that are asked for at once. */
const AT_ONCE = 32;

/** A frozen model at a trainer: what it thinks of a sequence is what it says of a prompt, and one more token is sampled. */
export function createRemoteScorer(
  session: RemoteSession,
  {
    contextLength,
    model,
  }: {
    readonly contextLength: number;
    readonly model: { readonly base_model: string } | { readonly model_path: string };
  },
): Scorer {
  const longest = contextLength - 1;

  async function score({ tokens_T, weights_T }: ScoredSequence): Promise<Float32Array> {
    const logprobs_T = new Float32Array(tokens_T.length);
    if (tokens_T.length > longest) {
      throw new OsmosisError("VALIDATION", `${tokens_T.length} tokens exceed the ${longest} of the model.`);
    }
    const json = {
      ...model,
      num_samples: 1,
      prompt: { chunks: [{ type: "encoded_text", tokens: tokens_T }] },
      sampling_params: { max_tokens: 1, seed: 0, stop: [], temperature: 1, top_k: -1, top_p: 1 },
      prompt_logprobs: true,
    };
    const pending = await session.wire.start("/asample", { json }, session.signal);
    const { prompt_logprobs: told } = readAnswer(
      await pending.result(),
      TinkerSampleResponse,
      decodeSampleResponse,
    );
    if (told == null) throw rubbish("no log probabilities of the prompt");
    // The first token has none, and some servers leave it out.
    const shift = tokens_T.length - told.length;
    if (shift !== 0 && shift !== 1)
      throw rubbish(`${told.length} log probabilities for ${tokens_T.length} tokens`);
    for (let t = 1; t < tokens_T.length; t++) {
      if (weights_T !== undefined && (weights_T[t] ?? 0) === 0) continue;
      const logprob = told[t - shift];
      if (typeof logprob !== "number" || !Number.isFinite(logprob))
        throw rubbish("a log probability that is none");
      logprobs_T[t] = logprob;
    }
    return logprobs_T;
  }

  return {
    contextLength: longest,
    async logprobs(sequences_B, { temperature = 1 } = {}) {
      if (temperature !== 1) {
        throw new OsmosisError("VALIDATION", "A remote trainer scores sequences at temperature 1 only.", {
          hint: "Set [sampling].rollout_temperature = 1, or use the embedded trainer.",
        });
      }
      const results: Float32Array[] = [];
      for (let at = 0; at < sequences_B.length; at += AT_ONCE) {
        results.push(...(await Promise.all(sequences_B.slice(at, at + AT_ONCE).map(score))));
      }
      return results;
    },
    async [Symbol.asyncDispose]() {},
  };
}
