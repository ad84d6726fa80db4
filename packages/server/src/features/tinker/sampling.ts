import { randomInt, randomUUID } from "node:crypto";
import type { ModelSource } from "@osmosis/engine";
import {
  OsmosisError,
  encodeSampleResponse,
  type TinkerSample,
  type TinkerSampleResponse,
} from "@osmosis/protocol";
import type { EngineHost } from "./engine-host.ts";
import type { Result } from "./promises.ts";

/**
 * Samples as a request says. Sample i of it has the seed `seed + i`.
 *
 * @throws OsmosisError `VALIDATION` for what the engine does not do.
 */
export async function sampleFrom(
  host: EngineHost,
  source: ModelSource,
  request: TinkerSample,
  signal: AbortSignal,
): Promise<Result> {
  const { sampling_params: params, num_samples: count } = request;
  refuseUnsupported(request);
  const stopTokens = await stopTokensOf(source.folder, params.stop);
  const prompt_T = request.prompt.chunks.flatMap(({ tokens }) => tokens);
  const seed = params.seed ?? randomInt(2 ** 31);
  const samples = await host.withSampler(source, async (sampler) => {
    const room = Math.max(1, sampler.contextLength - prompt_T.length);
    return await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const conversation = randomUUID();
        try {
          return await sampler.sample({
            conversation,
            prompt_T,
            maxTokens: Math.min(params.max_tokens ?? room, room),
            temperature: params.temperature,
            topP: params.top_p,
            stopTokens,
            seed: seed + index,
            signal,
          });
        } finally {
          sampler.endConversation(conversation);
        }
      }),
    );
  });
  const body: TinkerSampleResponse = {
    type: "sample",
    sequences: samples.map(({ stopReason, tokens_T, logprobs_T }) => ({
      stop_reason: stopReason,
      tokens: [...tokens_T],
      logprobs: [...logprobs_T],
    })),
  };
  return { body, protobuf: () => encodeSampleResponse(body) };
}

function refuseUnsupported(request: TinkerSample): void {
  const asked = [
    request.prompt_logprobs === true && "prompt_logprobs",
    (request.topk_prompt_logprobs ?? 0) > 0 && "topk_prompt_logprobs",
    (request.topk_sample_logprobs ?? 0) > 0 && "topk_sample_logprobs",
    request.sampling_params.top_k > 0 && "top_k",
  ].filter((name) => name !== false);
  if (asked.length === 0) return;
  throw new OsmosisError("VALIDATION", `This server does not do ${asked.join(", ")}.`, {
    hint: asked.includes("prompt_logprobs") ? "Use forward with cross_entropy for them." : "Leave it out.",
  });
}

/** Absent: the ends of the model's own tokenizer. Texts have to be single tokens. */
async function stopTokensOf(
  folder: string,
  stop: TinkerSample["sampling_params"]["stop"],
): Promise<readonly number[]> {
  const stops = typeof stop === "string" ? [stop] : stop;
  const numbers = stops?.filter((one) => typeof one === "number");
  if (numbers != null && numbers.length === stops?.length) return numbers;
  const { loadChatCodec } = await import("@osmosis/engine");
  const codec = await loadChatCodec(folder);
  if (stops == null) return codec.stopTokens;
  return stops.map((text) => {
    const [token, ...others] = codec.encode(String(text));
    if (token !== undefined && others.length === 0) return token;
    throw new OsmosisError(
      "VALIDATION",
      `The stop text ${JSON.stringify(text)} is not one token of this model.`,
      {
        hint: "Stop at token ids, or cut the text yourself.",
      },
    );
  });
}
