import { z } from "zod";
import { route } from "../route.ts";
import { LogPage, LogQuery, PageQuery, pageFields } from "./page.ts";

export const DatasetStatus = z.enum(["pending", "uploading", "processing", "uploaded", "error", "cancelled"]);

export const Dataset = z.object({
  id: z.string(),
  /** The platform's name: the file's name without its extension. */
  file_name: z.string(),
  name: z.string(),
  file_size: z.int(),
  status: DatasetStatus,
  /** What was wrong when `status` is `error`. */
  error: z.string().nullable(),
  /** The first rows, up to 20; null while they are being read. */
  data_preview: z.array(z.record(z.string(), z.unknown())).nullable(),
  file_format: z.enum(["jsonl", "csv", "parquet"]),
  row_count: z.int().nullable(),
  creator_name: z.string().nullable(),
  created_at: z.string(),
  updated_at: z.string(),
  platform_url: z.string(),
});
export type Dataset = z.infer<typeof Dataset>;

/** How to bring the bytes: one PUT, or a PUT per part; each answers with an ETag header. */
export const UploadInfo = z.discriminatedUnion("method", [
  z.object({
    method: z.literal("simple"),
    presigned_url: z.string(),
    upload_headers: z.record(z.string(), z.string()).optional(),
    expires_in: z.int(),
    s3_key: z.string(),
  }),
  z.object({
    method: z.literal("multipart"),
    part_size: z.int(),
    total_parts: z.int(),
    presigned_urls: z.array(z.object({ part_number: z.int(), presigned_url: z.string(), size: z.int() })),
    upload_id: z.string(),
    s3_key: z.string(),
  }),
]);
export type UploadInfo = z.infer<typeof UploadInfo>;

const byName = { access: "workspace" } as const;

export const datasetRoutes = {
  list: route({
    method: "GET",
    path: "/api/cli/datasets",
    access: "workspace",
    query: PageQuery,
    response: z.object({ datasets: z.array(Dataset), ...pageFields }),
  }),
  /** 409 with `existing_dataset_id` when the name is taken and `overwrite_dataset_id` does not say so. */
  create: route({
    method: "POST",
    path: "/api/cli/datasets",
    access: "workspace",
    body: z.object({
      file_name: z.string().min(1).max(255),
      file_size: z.int().positive(),
      extension: z.enum(["jsonl", "csv", "parquet"]),
      overwrite_dataset_id: z.string().optional(),
    }),
    response: Dataset.extend({ upload: UploadInfo }),
  }),
  complete: route({
    method: "POST",
    path: "/api/cli/datasets/{id}/complete",
    access: "workspace",
    body: z.object({
      file_extension: z.string().optional(),
      parts: z.array(z.object({ PartNumber: z.int(), ETag: z.string() })).optional(),
    }),
    response: Dataset,
  }),
  abort: route({
    method: "POST",
    path: "/api/cli/datasets/{id}/abort",
    access: "workspace",
    body: z.object({}),
    response: z.object({}),
  }),
  get: route({ method: "GET", path: "/api/cli/datasets/{name}", ...byName, response: Dataset }),
  download: route({
    method: "GET",
    path: "/api/cli/datasets/{name}/download",
    ...byName,
    response: z.object({ presigned_url: z.string(), expires_in: z.int(), file_name: z.string() }),
  }),
  logs: route({
    method: "GET",
    path: "/api/cli/datasets/{name}/logs",
    ...byName,
    query: LogQuery,
    response: LogPage,
  }),
};
