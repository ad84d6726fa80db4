export { ChatEndpointError, type RolloutFailure } from "./failure.ts";
export { Grader, type GraderContext } from "./grader.ts";
export { LocalBackend, type LocalBackendOptions } from "./local-backend.ts";
export {
  currentRollout,
  type RolloutContext,
  type SampleSource,
  type SourcedSample,
} from "./rollout-context.ts";
export {
  createRolloutServer,
  type ListeningServer,
  type RolloutServer,
  type RolloutServerOptions,
} from "./rollout-server.ts";
export { lastAssistantText, messageText, type RolloutSample } from "./sample.ts";
export { serveRollout } from "./serve.ts";
export {
  AgentWorkflow,
  type AgentWorkflowContext,
  type AgentWorkflowOutput,
  type AgentWorkflowResult,
} from "./workflow.ts";
