import type { ModelConfig } from "../model-config.ts";
import type { Weights } from "../safetensors.ts";
import type { SampleRequest, SampleResult } from "../service.ts";

/**
 * The sampling half of a model, in the engine's worker thread. Steps must let the thread's other work through:
 * messages, and micro-batches of training. The weights it is given never change under its hands.
 */
export type SamplingEngine = {
  /** Rejects with the signal's reason once it is aborted. */
  sample(request: SampleRequest): Promise<SampleResult>;
  endConversation(conversation: string): void;
  /** From the next step on, `weights` are what is sampled from; caches of the old ones are void. */
  setWeights(weights: Weights, version: number): void;
  close(): Promise<void>;
};

export type OpenSamplingEngine = (options: {
  readonly config: ModelConfig;
  readonly weights: Weights;
  readonly version: number;
}) => Promise<SamplingEngine>;
