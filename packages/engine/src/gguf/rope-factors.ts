import { OsmosisError } from "@osmosis/protocol";
import { ropeStretch } from "../rope-periods.ts";

/** The tensor in which a GGUF file says how the rotary embedding of Llama 3.1 and later is stretched. */
export const ROPE_FACTORS = "rope_freqs.weight";

/** All models of the kind share these; a file holds only what follows from them. */
const LLAMA3 = { lowTurns: 1, highTurns: 4, originalContext: 8192 } as const;

/**
 * The `rope_scaling` of `config.json` that gives these factors.
 * @throws OsmosisError `VALIDATION` when there is none.
 */
export function ropeScalingOf(
  path: string,
  factors: Float32Array,
  ropeTheta: number,
): Record<string, unknown> {
  const factor = Math.max(1, ...factors);
  const fits = factors.every((found, pair) => {
    const period = ropeTheta ** (pair / factors.length);
    const expected = ropeStretch(period, { ...LLAMA3, factor });
    return Math.abs(found - expected) <= 1e-3 * expected;
  });
  if (!fits) {
    throw new OsmosisError(
      "VALIDATION",
      `${path}: tensor ${ROPE_FACTORS} stretches the rotary embedding otherwise than Llama 3 does.`,
      { hint: "Import the model's Hugging Face folder instead." },
    );
  }
  return {
    rope_type: "llama3",
    factor,
    low_freq_factor: LLAMA3.lowTurns,
    high_freq_factor: LLAMA3.highTurns,
    original_max_position_embeddings: LLAMA3.originalContext,
  };
}
