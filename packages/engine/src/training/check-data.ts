import { OsmosisError } from "@osmosis/protocol";
import type { ModelConfig } from "../model-config.ts";
import type { Datum, LossSpec } from "../service.ts";

/** @throws OsmosisError `VALIDATION` naming the first datum that the model cannot train on. */
export function checkData(data_B: readonly Datum[], loss: LossSpec, config: ModelConfig): void {
  for (const [index, datum] of data_B.entries()) {
    const problem = problemOf(datum, config);
    if (problem !== undefined) throw new OsmosisError("VALIDATION", `Datum ${index}: ${problem}.`);
  }
  if (
    (loss.type === "ppo" || loss.type === "cispo") &&
    !(loss.clipLow >= 0 && loss.clipLow <= loss.clipHigh)
  ) {
    throw new OsmosisError(
      "VALIDATION",
      `Clip bounds ${loss.clipLow} and ${loss.clipHigh} are no range of a probability ratio.`,
      { hint: "They are absolute, such as 0.8 and 1.28." },
    );
  }
}

function problemOf(datum: Datum, config: ModelConfig): string | undefined {
  const { tokens_T, weights_T, advantages_T, samplerLogprobs_T } = datum;
  const T = tokens_T.length;
  if (T > config.contextLength) return `${T} tokens exceed the context of ${config.contextLength}`;
  for (const [name, values] of Object.entries({ weights_T, advantages_T, samplerLogprobs_T })) {
    if (values.length !== T) return `${name} has ${values.length} entries for ${T} tokens`;
    const at = values.findIndex((value) => !Number.isFinite(value));
    if (at >= 0) return `${name}[${at}] is ${values[at]}`;
  }
  const at = tokens_T.findIndex(
    (token) => !Number.isInteger(token) || token < 0 || token >= config.vocabSize,
  );
  if (at >= 0)
    return `token ${tokens_T[at]} at position ${at} is outside the vocabulary of ${config.vocabSize}`;
  return undefined;
}
