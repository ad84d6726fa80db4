import { z } from "zod";
import { route } from "../route.ts";
import { UploadInfo } from "./datasets.ts";
import { PageQuery, pageFields } from "./page.ts";
import { CheckpointMark } from "./runs.ts";

export const BaseModel = z.object({
  id: z.string(),
  model_name: z.string(),
  base_model: z.string(),
  /** Null for a model without weights here: a trainer by URL has them. */
  parameters: z.int().nullable(),
  creator_name: z.string().nullable(),
  created_at: z.string(),
  updated_at: z.string(),
});
export type BaseModel = z.infer<typeof BaseModel>;

/** A checkpoint of a training run: an adapter, or all weights after full fine-tuning. */
export const TrainedModel = z.object({
  id: z.string(),
  model_name: z.string(),
  base_model: z.string(),
  training_run_name: z.string(),
  checkpoint_step: z.int(),
  method: z.enum(["lora", "full"]),
  /** Validation reward if the step was validated, else the mean training reward. */
  reward: z.number().nullable(),
  validation_reward: z.number().nullable().default(null),
  marks: z.array(CheckpointMark),
  /** When `keep_checkpoints` removed its files; lists leave such out. */
  files_removed_at: z.string().nullable(),
  size_bytes: z.int(),
  created_at: z.string(),
});
export type TrainedModel = z.infer<typeof TrainedModel>;

/** `owner/name`, as on the Hugging Face hub. */
export const ModelName = z
  .string()
  .max(200)
  .regex(/^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/, "is not of the form owner/name");

/** A file of a Hugging Face model folder; `sha256` in hex. */
export const ModelFile = z.object({
  name: z.string().regex(/^[\w][\w.-]*\.(?:json|safetensors|jinja|txt|model)$/, "is not a file of a model"),
  size_bytes: z.int().positive(),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
});
export type ModelFile = z.infer<typeof ModelFile>;

const BaseModelFiles = z.object({
  model_name: ModelName,
  files: z.array(ModelFile).min(1).max(1000),
  /** Replaces a model of that name; without it a taken name is a 409. Runs keep the files that they began with. */
  overwrite: z.boolean().default(false),
});

const DownloadableFile = z.object({
  name: z.string(),
  size_bytes: z.int(),
  sha256: z.string(),
  presigned_url: z.string(),
});

export const modelRoutes = {
  /**
   * How to bring the files of a base model: for each that the platform does not have, by its SHA-256, where it goes. Of
   * a file in parts only those are named that have not arrived, so that asking again resumes.
   */
  startImport: route({
    method: "POST",
    path: "/api/cli/models/base/uploads",
    access: "user",
    body: BaseModelFiles,
    response: z.object({ uploads: z.array(z.object({ name: z.string(), upload: UploadInfo })) }),
  }),
  /** Registers a base model when all of its files have arrived; without weights it is one for trainers by URL only. */
  import: route({
    method: "POST",
    path: "/api/cli/models/base",
    access: "user",
    body: BaseModelFiles,
    response: BaseModel,
  }),
  base: route({
    method: "GET",
    path: "/api/cli/models/base",
    access: "workspace",
    query: PageQuery,
    response: z.object({ models: z.array(BaseModel), ...pageFields }),
  }),
  /** By name, whose slash is encoded, or by id. */
  getBase: route({
    method: "GET",
    path: "/api/cli/models/base/{name}",
    access: "workspace",
    response: BaseModel.extend({
      /** The part of its name before the slash. */
      namespace: z.string(),
      /** Longest sequence, in tokens; null when the file with it is lost, or does not tell it. */
      context_window: z.int().nullable(),
      platform_url: z.string(),
    }),
  }),
  trained: route({
    method: "GET",
    path: "/api/cli/models/lora",
    access: "workspace",
    query: PageQuery,
    response: z.object({ models: z.array(TrainedModel), ...pageFields }),
  }),
  get: route({
    method: "GET",
    path: "/api/cli/models/{name}",
    access: "workspace",
    response: TrainedModel.extend({
      platform_url: z.string(),
      /** Of an adapter the files of the model beneath it; empty for a whole model. */
      base_files: z.array(DownloadableFile),
      /** Where the files are, for each a URL that lives for 15 minutes. */
      files: z.array(DownloadableFile),
    }),
  }),
};
