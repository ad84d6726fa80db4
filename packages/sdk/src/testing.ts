/** Tools for testing a workflow and a grader without a platform and without a model. */
export type { RolloutResult } from "./execution.ts";
export { runRollout, type RunRolloutOptions } from "./run-rollout.ts";
export {
  scriptedModel,
  type ScriptedCall,
  type ScriptedModel,
  type ScriptedToolCall,
  UnconsumedModelCallsError,
  UnexpectedModelCallError,
} from "./scripted-model.ts";
