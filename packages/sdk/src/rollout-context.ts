import { AsyncLocalStorage } from "node:async_hooks";
import type { RawMessage, TrajectoryReport } from "@osmosis/protocol";
import { OsmosisError } from "@osmosis/protocol";

/** Something that knows the conversation of an execution, such as a model integration. */
export type SampleSource = {
  /** Named in the message when a second source turns up. */
  readonly name: string;
  /** Read once, when the workflow has returned. */
  sample(): SourcedSample;
};

export type SourcedSample = {
  readonly messages: readonly RawMessage[];
  /** What the model calls used, for the trajectory; not part of the sample. */
  readonly report?: TrajectoryReport;
};

/** The execution that the calling code is part of. */
export type RolloutContext = {
  readonly rolloutId: string;
  /** Base URL without a slash at its end; clients append `/chat/completions`. */
  readonly chatCompletionsUrl: string;
  /** Bearer for that URL; null when it needs none. */
  readonly apiKey: string | null;
  /** Aborts when the rollout is cancelled or out of time, and when the workflow has returned: for model calls. */
  readonly signal: AbortSignal;
  /**
   * Makes `source` the sample of this execution, unless the workflow returns messages.
   *
   * @throws OsmosisError `CONFLICT` when there is one already: one execution is one sample.
   */
  setSampleSource(source: SampleSource): void;
};

const storage = new AsyncLocalStorage<RolloutContext>();

/**
 * The rollout that the caller runs in.
 *
 * @throws OsmosisError `VALIDATION` outside of `AgentWorkflow.run`.
 */
export function currentRollout(): RolloutContext {
  const context = storage.getStore();
  if (context) return context;
  throw new OsmosisError("VALIDATION", "There is no rollout here.", {
    hint: "Call this inside AgentWorkflow.run, not when the module loads.",
  });
}

export function runInRollout<T>(context: RolloutContext, work: () => T): T {
  return storage.run(context, work);
}

export function createRolloutContext(
  options: Omit<RolloutContext, "setSampleSource"> & { onSource: (source: SampleSource) => void },
): RolloutContext {
  const { onSource, ...fields } = options;
  let source: SampleSource | undefined;
  return {
    ...fields,
    setSampleSource(added) {
      if (source && source !== added) {
        throw new OsmosisError(
          "CONFLICT",
          `This execution has two samples: ${source.name} records one already, and now ${added.name} wants to.`,
          { hint: "One execution is one sample: use one model object for all agents of the workflow." },
        );
      }
      source = added;
      onSource(added);
    },
  };
}
