import type { Scorer, TrainableModel } from "@osmosis/engine";
import { OsmosisError } from "@osmosis/protocol";
import { deadlineOf } from "../deadline.ts";

/** Longer than any step of a trainer that works; a trainer that hangs shall not hold a run for ever. */
const CALL_TIMEOUT_MS = 2 * 60 * 60 * 1000;

type Bounds = { readonly signal: AbortSignal; readonly timeoutMs?: number };

/**
 * The model, with a deadline on every call of its training half: a call that takes two hours rejects, and so does one that
 * computes when the signal aborts. What writes into a folder is waited for, so that nobody clears the folder beneath it.
 * Calls of the sampler have the deadlines of their rollouts.
 */
export function boundedModel(model: TrainableModel, bounds: Bounds): TrainableModel {
  const bounded = boundedCalls(bounds);
  return {
    contextLength: model.contextLength,
    sample: (request) => model.sample(request),
    endConversation: (conversation) => model.endConversation(conversation),
    forwardBackward: (...given) => bounded("forward_backward", () => model.forwardBackward(...given)),
    forward: (...given) => bounded("forward", () => model.forward(...given)),
    optimStep: (params) => bounded("optim_step", () => model.optimStep(params)),
    syncSampler: () => bounded("sync_sampler", () => model.syncSampler()),
    saveWeights: (folder) => bounded("save_weights", () => model.saveWeights(folder), []),
    saveState: (folder) => bounded("save_state", () => model.saveState(folder), []),
    loadState: (folder) => bounded("load_state", () => model.loadState(folder)),
    [Symbol.asyncDispose]: () => model[Symbol.asyncDispose](),
  };
}

/** The same for a frozen model. */
export function boundedScorer(scorer: Scorer, bounds: Bounds): Scorer {
  const bounded = boundedCalls(bounds);
  return {
    contextLength: scorer.contextLength,
    logprobs: (...given) => bounded("logprobs", () => scorer.logprobs(...given)),
    [Symbol.asyncDispose]: () => scorer[Symbol.asyncDispose](),
  };
}

function boundedCalls({ signal, timeoutMs = CALL_TIMEOUT_MS }: Bounds) {
  return async <Result>(
    name: string,
    call: () => Promise<Result>,
    ends: readonly AbortSignal[] = [signal],
  ): Promise<Result> => {
    signal.throwIfAborted();
    using deadline = deadlineOf(ends, timeoutMs);
    const { promise: over, reject } = Promise.withResolvers<never>();
    deadline.signal.addEventListener(
      "abort",
      () => reject(deadline.expired() ? tooLong(name, timeoutMs) : signal.reason),
      { once: true },
    );
    return await Promise.race([call(), over]);
  };
}

function tooLong(name: string, timeoutMs: number): OsmosisError {
  return new OsmosisError(
    "RUN_FAILED",
    `The trainer did not answer ${name} within ${timeoutMs / 60_000} minutes.`,
    {
      hint: "Look at the trainer: it hangs, or the batch is too large for it. The run goes on after its last committed step.",
    },
  );
}
