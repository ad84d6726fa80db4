import { randomInt, randomUUID } from "node:crypto";
import type { ChatCodec, ModelSource, SampleRequest, SampleResult, Sampler } from "@osmosis/engine";
import {
  OsmosisError,
  encodeSampleResponse,
  type TinkerSample,
  type TinkerSampleResponse,
} from "@osmosis/protocol";
import type { EngineHost } from "./engine-host.ts";
import type { Result } from "./promises.ts";
import { findStop, stopsOf, type Stops } from "./stops.ts";

/** Where texts end an answer, so many tokens are sampled before they are looked for again. */
const PIECE_TOKENS = 32;

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
  const stops = await stopsOf(() => host.codecOf(source.folder), params.stop);
  const prompt_T = request.prompt.chunks.flatMap(({ tokens }) => tokens);
  const seed = params.seed ?? randomInt(2 ** 31);
  const samples = await host.withSampler(source, async (sampler) => {
    const room = Math.max(1, sampler.contextLength - prompt_T.length);
    return await Promise.all(
      Array.from({ length: count }, (_, index) =>
        sampleOne(sampler, stops, {
          conversation: randomUUID(),
          prompt_T,
          maxTokens: Math.min(params.max_tokens ?? room, room),
          temperature: params.temperature,
          topP: params.top_p,
          ...(params.top_k > 0 && { topK: params.top_k }),
          stopTokens: stops.tokens,
          seed: seed + index,
          signal,
        }),
      ),
    );
  });
  const body: TinkerSampleResponse = {
    type: "sample",
    sequences: samples.map(({ stopReason, tokens_T, logprobs_T }) => ({
      stop_reason: stopReason,
      tokens: [...tokens_T],
      logprobs: [...logprobs_T],
    })),
    ...(request.prompt_logprobs === true && {
      prompt_logprobs: await promptLogprobs(host, source, prompt_T, request.prompt_logprobs_last_n),
    }),
  };
  return { body, protobuf: () => encodeSampleResponse(body) };
}

/** Null for the first token, and for those before the last `lastN`. */
async function promptLogprobs(
  host: EngineHost,
  source: ModelSource,
  prompt_T: readonly number[],
  lastN: number | null | undefined,
): Promise<(number | null)[]> {
  const first = Math.max(1, lastN == null ? 1 : prompt_T.length - lastN);
  const weights_T = prompt_T.map((_, t) => (t >= first ? 1 : 0));
  if (first >= prompt_T.length) return prompt_T.map(() => null);
  const [logprobs_T] = await host.withScorer(source, (scorer) =>
    scorer.logprobs([{ tokens_T: prompt_T, weights_T }]),
  );
  return prompt_T.map((_, t) => (t >= first ? (logprobs_T?.[t] ?? null) : null));
}

/**
 * One sample. Where texts end it, it is sampled piece by piece, each with a seed of its own, and cut behind the token
 * that completes the text.
 */
async function sampleOne(sampler: Sampler, { texts, codec }: Stops, request: SampleRequest) {
  try {
    if (codec === undefined) return await sampler.sample(request);
    return await sampleUntilText(sampler, { texts, codec }, request);
  } finally {
    sampler.endConversation(request.conversation);
  }
}

async function sampleUntilText(
  sampler: Sampler,
  { texts, codec }: { readonly texts: readonly string[]; readonly codec: ChatCodec },
  request: SampleRequest,
): Promise<Pick<SampleResult, "tokens_T" | "logprobs_T" | "stopReason">> {
  const tokens_T: number[] = [];
  const logprobs_T: number[] = [];
  for (let piece = 0; ; piece++) {
    const left = request.maxTokens - tokens_T.length;
    const sampled = await sampler.sample({
      ...request,
      prompt_T: [...request.prompt_T, ...tokens_T],
      maxTokens: Math.min(PIECE_TOKENS, left),
      seed: (request.seed + piece * 2 ** 32) % Number.MAX_SAFE_INTEGER,
    });
    const seen = tokens_T.length;
    tokens_T.push(...sampled.tokens_T);
    logprobs_T.push(...sampled.logprobs_T);
    const end = findStop(codec, tokens_T, texts, seen);
    if (end !== undefined) {
      return { tokens_T: tokens_T.slice(0, end), logprobs_T: logprobs_T.slice(0, end), stopReason: "stop" };
    }
    if (sampled.stopReason === "stop" || tokens_T.length >= request.maxTokens) {
      return { tokens_T, logprobs_T, stopReason: sampled.stopReason };
    }
  }
}

function refuseUnsupported(request: TinkerSample): void {
  const asked = [
    (request.topk_prompt_logprobs ?? 0) > 0 && "topk_prompt_logprobs",
    (request.topk_sample_logprobs ?? 0) > 0 && "topk_sample_logprobs",
    request.target_prompt_logprobs != null && "target_prompt_logprobs",
    (request.prompt_alt_tokens_k ?? 0) > 0 && "prompt_alt_tokens_k",
  ].filter((name) => name !== false);
  if (asked.length === 0) return;
  throw new OsmosisError("VALIDATION", `This server does not do ${asked.join(", ")}.`, {
    hint: "prompt_logprobs gives the log probability of each token of a prompt.",
  });
}
