/**
 * What a trainer does, whoever runs it: the five verbs `forwardBackward`, `optimStep`, `sample`, `saveWeights` and
 * `loadState`, after the Tinker wire. `embedded/` implements them on this machine's CPU.
 *
 * Arrays that run along one sequence of T token ids carry the suffix `_T`; index t speaks of the token at position t,
 * as predicted from the tokens before it, so index 0 is never used.
 */

/** One training sequence. All four arrays have the same length T. */
export type Datum = {
  readonly tokens_T: readonly number[];
  /** What the loss of each token is multiplied with; 0 where the token was not sampled by the policy. */
  readonly weights_T: readonly number[];
  /** Advantage per token; ignored by `cross_entropy`. */
  readonly advantages_T: readonly number[];
  /** Log probability of each token under the sampler, natural log; ignored by `cross_entropy`. */
  readonly samplerLogprobs_T: readonly number[];
};

/**
 * The loss is a plain sum over tokens: normalising is the caller's job, through `weights_T`. Clip bounds are absolute
 * bounds of the probability ratio (0.8 and 1.28, not 0.2 and 0.28).
 */
export type LossSpec =
  | { readonly type: "cross_entropy" }
  | { readonly type: "importance_sampling" }
  | { readonly type: "ppo"; readonly clipLow: number; readonly clipHigh: number }
  | { readonly type: "cispo"; readonly clipLow: number; readonly clipHigh: number };

export type ForwardBackwardResult = {
  /** Sum over all tokens of all sequences. */
  readonly loss: number;
  /**
   * Log probability of each token with a non-zero weight under the current weights, one array of length T per datum;
   * 0 at all other tokens, which may never be computed.
   */
  readonly logprobs_B_T: readonly Float32Array[];
  /** Mean entropy in nats of the next-token distribution over the positions with a non-zero weight. */
  readonly entropy: number;
};

/** Adam after Kingma and Ba, arXiv 1412.6980; `gradClipNorm` 0 means no clipping. */
export type AdamParams = {
  readonly learningRate: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  readonly weightDecay: number;
  readonly gradClipNorm: number;
};

export type OptimStepResult = {
  /** L2 norm of the accumulated gradient before clipping. */
  readonly gradNorm: number;
  /** False when the gradient was not finite: the step is skipped and the weights stay. */
  readonly updated: boolean;
};

export type SampleRequest = {
  /** Calls of one conversation share a name, so that the key-value cache of its earlier calls can be reused. */
  readonly conversation: string;
  readonly prompt_T: readonly number[];
  readonly maxTokens: number;
  /** 0 is greedy. Log probabilities are those of the distribution that was sampled from; at 0, of temperature 1. */
  readonly temperature: number;
  readonly topP: number;
  /** Draws from the so many likeliest tokens only; `topP` then counts within them. Without it from all. */
  readonly topK?: number;
  readonly stopTokens: readonly number[];
  /** The tokens depend on the weights, the prompt and this seed alone, never on what else is sampled meanwhile. */
  readonly seed: number;
  readonly signal?: AbortSignal;
};

export type SampleResult = {
  /** The sampled ids, the stop token included. */
  readonly tokens_T: readonly number[];
  readonly logprobs_T: readonly number[];
  readonly stopReason: "stop" | "length";
  /** Counts the weight updates that the sampler has seen, 0 for the weights as loaded. */
  readonly weightsVersion: number;
};

/** Answers sampling calls; many may be under way at once and are batched. */
export interface Sampler extends AsyncDisposable {
  /** Longest sequence, prompt and answer together, in tokens. */
  readonly contextLength: number;
  /** @throws OsmosisError `VALIDATION` when the prompt leaves no room for one token. */
  sample(request: SampleRequest): Promise<SampleResult>;
  /** Forgets the cache of a conversation; calling it for an unknown one does nothing. */
  endConversation(conversation: string): void;
}

/** A model under training, and the sampler that follows its weights. */
export interface TrainableModel extends Sampler {
  /** Adds the gradient of the loss to the accumulated gradient. */
  forwardBackward(
    data_B: readonly Datum[],
    loss: LossSpec,
    options?: ForwardOptions,
  ): Promise<ForwardBackwardResult>;
  /** The same without a gradient: log probabilities and loss only. */
  forward(data_B: readonly Datum[], loss: LossSpec, options?: ForwardOptions): Promise<ForwardBackwardResult>;
  /** Applies the accumulated gradient and clears it. */
  optimStep(params: AdamParams): Promise<OptimStepResult>;
  /** Makes the current weights those of `sample`; returns their version. */
  syncSampler(): Promise<number>;
  /** Writes the weights as safetensors that Hugging Face tools read: a whole model folder, or a PEFT adapter. */
  saveWeights(folder: string): Promise<void>;
  /** Writes everything that the next step depends on: weights, optimiser moments, step count. */
  saveState(folder: string): Promise<void>;
  /** Continues exactly where `saveState` was called. */
  loadState(folder: string): Promise<void>;
}

/** A frozen model that says how probable it finds sequences: the reference or the teacher of a training run. */
export interface Scorer extends AsyncDisposable {
  /** Longest sequence, in tokens. */
  readonly contextLength: number;
  /**
   * Natural-log probability of each token given those before it, one array of length T per sequence; 0 at index 0 and
   * where the sequence's mask is 0, where it may never be computed.
   *
   * @throws OsmosisError `VALIDATION` when a sequence exceeds the context or has a token that the model does not know.
   */
  logprobs(
    sequences_B: readonly ScoredSequence[],
    options?: ForwardOptions,
  ): Promise<readonly Float32Array[]>;
}

export type ScoredSequence = {
  readonly tokens_T: readonly number[];
  /** Not 0 where the log probability is wanted; without it everywhere. A datum's `weights_T` will do. */
  readonly weights_T?: readonly number[];
};

export type ForwardOptions = {
  /** Divides the logits, so that log probabilities are those of the distribution that was sampled from. */
  readonly temperature?: number;
};

export type TrainMethod =
  | { readonly type: "full" }
  | {
      readonly type: "lora";
      readonly rank: number;
      readonly alpha: number;
      /** The linear layers that are trained; without it those of attention and feed-forward. */
      readonly layers?: "attention" | "feed_forward";
    };

export type ModelSource = {
  /** Folder with `config.json`, `tokenizer.json`, `tokenizer_config.json` and safetensors. */
  readonly folder: string;
  /** Folder of a PEFT adapter to put on top. */
  readonly adapter?: string;
};

/** Where models are opened. The caller disposes what it opens. */
export interface TrainingService extends AsyncDisposable {
  openSampler(source: ModelSource): Promise<Sampler>;
  /** Opens a model that is neither trained nor sampled: the model with its adapter, if it has one, as it is. */
  openScorer(source: ModelSource): Promise<Scorer>;
  createModel(
    source: ModelSource,
    options: { readonly method: TrainMethod; readonly seed: number },
  ): Promise<TrainableModel>;
}
