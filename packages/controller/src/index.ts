export type { Clock } from "./clock.ts";
export { systemClock } from "./io.ts";
export { openGateway } from "./gateway/gateway.ts";
export type { Gateway, GatewayOptions, GatewayPolicy } from "./gateway/gateway.ts";
export type {
  OpenRollout,
  OpenRolloutOptions,
  RolloutSampling,
  RolloutTrace,
} from "./gateway/rollout-session.ts";
export { RolloutServerError, connectRolloutServer } from "./rollout/server-client.ts";
export type { RolloutServer, RolloutServerOptions } from "./rollout/server-client.ts";
export { batchedWriter } from "./rollout/durable-writer.ts";
export { driveRollout } from "./rollout/drive-rollout.ts";
export type { DriveRollout, DriveRolloutOptions, RolloutTimeouts } from "./rollout/drive-rollout.ts";
export { rolloutIdOf, rolloutSeed } from "./rollout/rollout-id.ts";
export type { RolloutIdentity } from "./rollout/rollout-id.ts";
export { replaySteps } from "./grpo/replay.ts";
export type { ReplayOptions } from "./grpo/replay.ts";
export { pastStepOf } from "./grpo/milestones.ts";
export { runSize } from "./grpo/run-size.ts";
export { stepsOf } from "./grpo/schedule.ts";
export { trainRun } from "./grpo/train.ts";
export type { TrainPorts, TrainRunOptions } from "./grpo/train-options.ts";
export { evaluateRun, withoutConversation } from "./evaluation/evaluate.ts";
export type { EvaluateRunOptions } from "./evaluation/evaluate.ts";
export { evaluationResults, isSkipped } from "./evaluation/results.ts";
export type { EvaluatedRollout, EvaluationFacts } from "./evaluation/results.ts";
export { wilsonInterval } from "./evaluation/statistics.ts";
export { PASS_THRESHOLD } from "./grpo/metrics.ts";
export { diagnose } from "./doctor/diagnose.ts";
export type { RunHistory } from "./doctor/run-history.ts";
export { ABORTED_MINUTES } from "./doctor/thresholds.ts";
export { alignCurves, differencesOf } from "./comparison/curves.ts";
export { pairedDifference, pairedRows } from "./comparison/paired.ts";
export type { RunEnd, RunPorts } from "./run-ports.ts";
export * from "./dataset/index.ts";
