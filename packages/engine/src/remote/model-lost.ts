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
