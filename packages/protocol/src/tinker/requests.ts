/** The small JSON bodies of the Tinker wire. Keys that are not listed here are ignored. */
import { z } from "zod";

/** Where every path of the wire begins. */
export const TINKER_PREFIX = "/api/v1";

/** The content type of protocol buffers on this wire. */
export const TINKER_PROTOBUF = "application/x-protobuf";

export const TinkerCreateSession = z.object({
  tags: z.array(z.string()).default([]),
  user_metadata: z.record(z.string(), z.unknown()).nullish(),
  sdk_version: z.string().nullish(),
});

export const TinkerSessionCreated = z.object({ session_id: z.string() });

/** What a server wants of its clients; the numbers bound one request for a forward pass. */
export const TinkerClientConfig = z.object({
  fwdbwd_max_chunk_len: z.int().positive().default(1024),
  fwdbwd_max_chunk_bytes_count: z.int().positive().default(5_000_000),
  /** Ours: a forward pass takes a `temperature` in `loss_fn_config`, and divides the logits by it. */
  forward_temperature: z.boolean().default(false),
});
export type TinkerClientConfig = z.output<typeof TinkerClientConfig>;

export const TinkerCapabilities = z.object({
  supported_models: z.array(
    z.object({
      model_name: z.string().nullish(),
      max_context_length: z.int().nullish(),
      /** Ours: rows of the model's embedding. */
      vocab_size: z.int().nullish(),
    }),
  ),
});

export const TinkerHeartbeat = z.object({ session_id: z.string() });

const LoraConfig = z.object({
  /** As far as the platform's own runs go: memory grows with it, and the engine serves everybody. */
  rank: z.int().positive().max(512),
  /** Ours: the scale of the adapter is alpha / rank. */
  alpha: z.number().positive().default(32),
  seed: z.int().nullish(),
  train_unembed: z.boolean().default(true),
  train_mlp: z.boolean().default(true),
  train_attn: z.boolean().default(true),
});

export const TinkerCreateModel = z.object({
  session_id: z.string(),
  model_seq_id: z.int().nonnegative(),
  base_model: z.string(),
  /** Without it all weights are trained. */
  lora_config: LoraConfig.nullish(),
  user_metadata: z.record(z.string(), z.unknown()).nullish(),
});
export type TinkerCreateModel = z.output<typeof TinkerCreateModel>;

export const TinkerModelCreated = z.object({ model_id: z.string() });

export const TinkerModelOnly = z.object({ model_id: z.string() });

export const TinkerOptimStep = z.object({
  model_id: z.string(),
  seq_id: z.int().positive(),
  adam_params: z.object({
    learning_rate: z.number().nonnegative().default(1e-4),
    beta1: z.number().min(0).lt(1).default(0.9),
    beta2: z.number().min(0).lt(1).default(0.95),
    /** Above 0: the first gradient of half of an adapter is 0, and 0 / 0 is not a number. */
    eps: z.number().positive().default(1e-12),
    weight_decay: z.number().nonnegative().default(0),
    grad_clip_norm: z.number().nonnegative().default(0),
  }),
});

export const TinkerOptimStepOutput = z.object({ metrics: z.record(z.string(), z.number()).nullish() });

/** A name of saved weights: one segment of a path. */
const Name = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, "letters, digits, dots, dashes, at most 128");

export const TinkerSaveWeights = z.object({
  model_id: z.string(),
  seq_id: z.int().positive(),
  path: Name.nullish(),
  overwrite: z.boolean().default(false),
});

export const TinkerSaveForSampler = z.object({
  model_id: z.string(),
  seq_id: z.int().positive(),
  /** Without a name the weights live as long as the sampling session. */
  path: Name.nullish(),
  sampling_session_seq_id: z.int().nullish(),
});

export const TinkerSaved = z.object({
  path: z.string().nullish(),
  sampling_session_id: z.string().nullish(),
});

/** Into a model, by `model_id` and `seq_id`; or as a new one, by `session_id` and `model_seq_id`. */
export const TinkerLoadWeights = z.object({
  model_id: z.string().nullish(),
  seq_id: z.int().positive().nullish(),
  session_id: z.string().nullish(),
  model_seq_id: z.int().nonnegative().nullish(),
  path: z.string(),
  optimizer: z.boolean(),
});

export const TinkerLoaded = z.object({ path: z.string().nullish(), model_id: z.string().nullish() });

export const TinkerCreateSamplingSession = z.object({
  session_id: z.string(),
  sampling_session_seq_id: z.int().nonnegative(),
  base_model: z.string().nullish(),
  model_path: z.string().nullish(),
});

export const TinkerSamplingSessionCreated = z.object({ sampling_session_id: z.string() });

/** What starting something slow answers: ask for the result by this id. */
export const TinkerPromise = z.object({ request_id: z.string(), model_id: z.string().nullish() });

export const TinkerRetrieve = z.object({
  request_id: z.string(),
  allow_metadata_only: z.boolean().default(false),
});

/** A result that is not there yet. */
export const TinkerTryAgain = z.object({ type: z.literal("try_again") });

/** A result that will never be there; `user` means that the request itself is wrong. */
export const TinkerFailed = z.object({
  error: z.string(),
  category: z.enum(["unknown", "server", "user"]).catch("unknown"),
});

export const TinkerWeightsInfo = z.object({ tinker_path: z.string() });
