import { z } from "zod";
import { route } from "../route.ts";
import { PageQuery, pageFields } from "./page.ts";

export const BaseModel = z.object({
  id: z.string(),
  model_name: z.string(),
  base_model: z.string(),
  parameters: z.int(),
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
  reward: z.number().nullable(),
  size_bytes: z.int(),
  created_at: z.string(),
});
export type TrainedModel = z.infer<typeof TrainedModel>;

export const modelRoutes = {
  base: route({
    method: "GET",
    path: "/api/cli/models/base",
    access: "workspace",
    query: PageQuery,
    response: z.object({ models: z.array(BaseModel), ...pageFields }),
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
      /** Where the files are, for each a URL that lives for 15 minutes. */
      files: z.array(z.object({ name: z.string(), size_bytes: z.int(), presigned_url: z.string() })),
    }),
  }),
};
