import { OsmosisError } from "@osmosis/protocol";

/**
 * The trainer knows the model or its session no more: it was started again, or heard nothing of us for too long. What was
 * saved under a name is still there, so whoever loads the last saved state into a new model goes on as if nothing had
 * happened.
 */
export class ModelLost extends OsmosisError {
  constructor(cause: OsmosisError) {
    super("NOT_FOUND", `The trainer has lost the model. ${cause.message}`, {
      hint: "The run goes on from the state after its last committed step.",
      cause,
    });
  }
}

/** Whoever does not know the model any more says "not found", whatever it was asked. */
export function lost(error: unknown): never {
  throw error instanceof OsmosisError && error.code === "NOT_FOUND" ? new ModelLost(error) : error;
}

/** The trainer answers with tokens that the model here does not have: it samples from another one. */
export class OtherVocabulary extends OsmosisError {
  constructor(token: number, vocabSize: number) {
    super(
      "VALIDATION",
      `The trainer sampled token ${token}; the model here has ids up to ${vocabSize - 1} only, so the trainer's is another one.`,
      { hint: "Name the same model to both: [experiment].model_path here, [advanced].trainer_model there." },
    );
  }
}

/**
 * Whether a sampler that fails so will fail so with every call: its model is lost, or another one, nobody has answered for
 * minutes, or the key is refused.
 */
export function failsForGood(error: unknown): error is OsmosisError {
  if (error instanceof ModelLost || error instanceof OtherVocabulary) return true;
  return error instanceof OsmosisError && (error.code === "NETWORK" || error.code === "AUTH_REQUIRED");
}
