import { OsmosisError } from "@osmosis/protocol";
import type { ModelConfig } from "../model-config.ts";
import type { SampleRequest } from "../service.ts";

/** Below it, dividing by the temperature leaves nothing of a float32 logit's precision, and finally overflows. */
const LEAST_TEMPERATURE = 1e-3;

/** @throws OsmosisError `VALIDATION` for a request that cannot be sampled. */
export function checkSampleRequest(
  request: SampleRequest,
  config: Pick<ModelConfig, "contextLength" | "vocabSize">,
): void {
  const { prompt_T, maxTokens, temperature, topP, topK, seed } = request;
  if (prompt_T.length === 0) throw invalid("The prompt is empty.");
  if (prompt_T.length >= config.contextLength) {
    throw invalid(
      `The prompt has ${prompt_T.length} tokens; with a context of ${config.contextLength} that leaves no room for an answer.`,
      "Shorten the conversation, or use a model with a longer context.",
    );
  }
  const unknown = prompt_T.find(
    (token) => !Number.isInteger(token) || token < 0 || token >= config.vocabSize,
  );
  if (unknown !== undefined) {
    throw invalid(
      `The prompt has token ${unknown}; the vocabulary ends at ${config.vocabSize - 1}.`,
      "Is it the tokenizer of this model?",
    );
  }
  if (!Number.isInteger(maxTokens) || maxTokens < 1)
    throw invalid(`maxTokens is ${maxTokens}, not at least 1.`);
  if (!Number.isFinite(temperature) || temperature < 0) throw invalid(`temperature is ${temperature}.`);
  if (temperature > 0 && temperature < LEAST_TEMPERATURE) {
    throw invalid(
      `temperature is ${temperature}.`,
      `Use 0 for the likeliest token, or at least ${LEAST_TEMPERATURE}.`,
    );
  }
  if (!(topP > 0 && topP <= 1)) throw invalid(`topP is ${topP}, not above 0 and at most 1.`);
  if (topK !== undefined && !(Number.isInteger(topK) && topK >= 1)) {
    throw invalid(`topK is ${topK}, not at least 1.`);
  }
  if (!Number.isSafeInteger(seed) || seed < 0) throw invalid(`seed is ${seed}, not a non-negative integer.`);
}

function invalid(message: string, hint?: string): OsmosisError {
  return new OsmosisError("VALIDATION", message, hint === undefined ? {} : { hint });
}
