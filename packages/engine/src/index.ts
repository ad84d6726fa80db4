export { createEmbeddedService } from "./embedded/service.ts";
export { importGguf } from "./gguf/import-gguf.ts";
export { checkModelFolder, checkWeightlessFolder } from "./model/check-model-folder.ts";
export type { CheckedModel, CheckedWeightless } from "./model/check-model-folder.ts";
export { initialiseModel } from "./model/parameters.ts";
export { loadChatCodec } from "./chat-codec.ts";
export type { ChatCodec } from "./chat-codec.ts";
export { tokenLoss } from "./losses.ts";
export type { TokenLoss } from "./losses.ts";
export {
  ARCHITECTURES,
  parseModelConfig,
  parseModelSize,
  readModelConfig,
  readModelSize,
} from "./model-config.ts";
export type { ModelConfig, ModelSize } from "./model-config.ts";
export { REDUCTIONS, measureConvention } from "./remote/calibration.ts";
export type { Reduction } from "./remote/calibration.ts";
export { ModelLost, failsForGood } from "./remote/model-lost.ts";
export { REFERENCE_FILE, readReference } from "./remote/reference.ts";
export { createRemoteService } from "./remote/service.ts";
export { nonFiniteTensors, readSafetensors, writeSafetensors } from "./safetensors.ts";
export type { Weights, WeightTensor } from "./safetensors.ts";
export type {
  AdamParams,
  Datum,
  ForwardBackwardResult,
  ForwardOptions,
  LossSpec,
  ModelSource,
  OptimStepResult,
  SampleRequest,
  SampleResult,
  Sampler,
  ScoredSequence,
  Scorer,
  TrainMethod,
  TrainableModel,
  TrainingService,
} from "./service.ts";
export { mergeAdapterFolder } from "./training/merge-folder.ts";
export { tokenIdMismatch } from "./token-ids.ts";
export type { ParsedAnswer, ParsedToolCall } from "./tool-call-text.ts";
