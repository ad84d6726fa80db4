import type { RawMessage } from "@osmosis/protocol";

/** What a workflow is given for one execution. */
export type AgentWorkflowContext<Config = undefined> = {
  readonly rolloutId: string;
  /** The messages to start from, in OpenAI form. Empty when the task is in `metadata`. */
  readonly prompt: readonly RawMessage[];
  /** A copy of the backend's `workflowConfig`, this execution's own. */
  readonly config: Config;
  /** The data set row's metadata; frozen. */
  readonly metadata: Readonly<Record<string, unknown>> | null;
  /** A folder for files to keep with the rollout; null when none could be made. */
  readonly artifactsDir: string | null;
  /** Aborts when the rollout is cancelled or out of time; hand it to whatever waits. */
  readonly signal: AbortSignal;
};

/**
 * The sample of one execution. Metrics are finite numbers. Without `messages` the conversation that the model integration
 * recorded is the sample; with `messages`, they are. `info` is kept in the trajectory.
 */
export type AgentWorkflowOutput = {
  readonly messages?: readonly object[] | null;
  readonly metrics?: Readonly<Record<string, number>>;
  readonly info?: unknown;
};

/** Nothing, when a model integration recorded the conversation. */
export type AgentWorkflowResult = AgentWorkflowOutput | readonly object[] | null | undefined | void;

/**
 * The agent under evaluation or training: extend it and implement `run`. It is constructed anew for every rollout, without
 * arguments. One execution is one sample.
 *
 * Model calls must go to the rollout's own endpoint (`currentRollout()`, or an integration that does it), never to a fixed
 * provider: that endpoint is what records tokens for training.
 *
 * @example
 * class Translate extends AgentWorkflow {
 *   async run(ctx: AgentWorkflowContext) {
 *     const agent = new Agent({ name: "translator", model: osmosisModel() });
 *     await runOsmosisAgent(agent, ctx.prompt);
 *   }
 * }
 */
export abstract class AgentWorkflow<Config = undefined> {
  abstract run(ctx: AgentWorkflowContext<Config>): Promise<AgentWorkflowResult> | AgentWorkflowResult;
}
