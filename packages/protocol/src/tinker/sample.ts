/** Sampling on the Tinker wire: the request, which is always JSON, and the answer in JSON and as protocol buffers. */
import { z } from "zod";
import { TinkerModelInput } from "./forward-backward.ts";
import { bytesOf, intOf, readMessage, writeMessage, type Field } from "./protobuf.ts";
import { float32Bytes, int32Bytes, numbersOf } from "./tensor.ts";

/** Each is looked for again and again while an answer grows. */
const StopText = z.string().max(8192);

export const TinkerSample = z.object({
  prompt: TinkerModelInput,
  num_samples: z.int().min(1).max(1024).default(1),
  sampling_params: z.object({
    /** Without it, as many as fit. */
    max_tokens: z.int().positive().nullish(),
    seed: z.int().nonnegative().nullish(),
    /** Absent: the model's own end tokens. An empty list: none at all. */
    stop: z.union([StopText, z.array(z.int()).max(1024), z.array(StopText).max(1024)]).nullish(),
    temperature: z.number().nonnegative().default(1),
    /** -1 (or 0) for no limit. */
    top_k: z.int().min(-1).default(-1),
    top_p: z.number().gt(0).max(1).default(1),
  }),
  base_model: z.string().nullish(),
  model_path: z.string().nullish(),
  sampling_session_id: z.string().nullish(),
  seq_id: z.int().nullish(),
  prompt_logprobs: z.boolean().nullish(),
  /** Of the prompt's tokens only the last so many. */
  prompt_logprobs_last_n: z.int().min(1).nullish(),
  topk_prompt_logprobs: z.int().nullish(),
  topk_sample_logprobs: z.int().nullish(),
  target_prompt_logprobs: z.unknown().optional(),
  prompt_alt_tokens_k: z.int().nullish(),
});
export type TinkerSample = z.output<typeof TinkerSample>;

export const TinkerSampleResponse = z.object({
  type: z.literal("sample").default("sample"),
  sequences: z.array(
    z.object({
      stop_reason: z.enum(["stop", "length"]),
      tokens: z.array(z.int()),
      logprobs: z.array(z.number()).nullish(),
    }),
  ),
  /** Of each token of the prompt given those before it; the first has none. */
  prompt_logprobs: z.array(z.number().nullable()).nullish(),
});
export type TinkerSampleResponse = z.output<typeof TinkerSampleResponse>;

export function encodeSampleResponse({ sequences, prompt_logprobs }: TinkerSampleResponse): Uint8Array {
  return writeMessage((writer) => {
    for (const { stop_reason, tokens, logprobs } of sequences) {
      writer.message(1, (sequence) => {
        sequence.varint(1, stop_reason === "length" ? 1 : 0);
        sequence.bytes(2, int32Bytes(tokens));
        if (logprobs != null) sequence.bytes(3, float32Bytes(logprobs));
      });
    }
    if (prompt_logprobs != null) {
      writer.bytes(2, float32Bytes(prompt_logprobs.map((logprob) => logprob ?? Number.NaN)));
    }
  });
}

export function decodeSampleResponse(bytes: Uint8Array): TinkerSampleResponse {
  const response: TinkerSampleResponse = { type: "sample", sequences: [] };
  for (const field of readMessage(bytes)) {
    if (field.number === 1) response.sequences.push(readSequence(field));
    if (field.number === 2) {
      const { data } = numbersOf(bytesOf(field), 1);
      response.prompt_logprobs = data.map((logprob) => (Number.isNaN(logprob) ? null : logprob));
    }
  }
  return response;
}

function readSequence(field: Field): TinkerSampleResponse["sequences"][number] {
  const sequence: TinkerSampleResponse["sequences"][number] = { stop_reason: "stop", tokens: [] };
  for (const part of readMessage(bytesOf(field))) {
    if (part.number === 1) sequence.stop_reason = intOf(part) === 1 ? "length" : "stop";
    if (part.number === 2) sequence.tokens = numbersOf(bytesOf(part), 3).data;
    if (part.number === 3) sequence.logprobs = numbersOf(bytesOf(part), 1).data;
  }
  return sequence;
}
