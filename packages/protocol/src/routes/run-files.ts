import { z } from "zod";
import { route } from "../route.ts";

/** Kinds of files that an evaluation can be downloaded as. Of `artifacts` there are none: agents leave them on the worker. */
export const RUN_FILE_TYPES = ["metrics", "trajectories", "artifacts", "logs"] as const;
export type RunFileType = (typeof RUN_FILE_TYPES)[number];

const RowRanges = z
  .string()
  .regex(/^\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*$/, 'is not like "3,7,10-20"')
  .transform((text) =>
    text.split(",").map((part) => {
      const [first = 0, last = first] = part.split("-").map(Number);
      return { first, last };
    }),
  );

/** A file by its path; `token` comes from the manifest, and says which content of it. */
const NamedFile = z.object({ path: z.string().min(1).max(1000), token: z.string().max(200) });

/**
 * An evaluation as files, for the official command line: `metrics.json`, `summary.jsonl`, `logs.txt`, and of each rollout
 * an ATIF document, `trajectories/row_<r>_run_<n>.json`.
 */
export const runFileRoutes = {
  manifest: route({
    method: "GET",
    path: "/api/cli/eval-runs/{name}/samples/manifest",
    access: "workspace",
    query: z.object({
      types: z
        .string()
        .transform((text) => text.split(","))
        .pipe(z.array(z.enum(RUN_FILE_TYPES))),
      /** Rows of the data set, by number and range; without it all. */
      rows: RowRanges.optional(),
    }),
    response: z.object({
      files: z.array(NamedFile.extend({ size: z.int().nonnegative() })),
      totals: z.object({ files: z.int(), bytes: z.int() }),
    }),
  }),
  urls: route({
    method: "POST",
    path: "/api/cli/eval-runs/{name}/samples/download-urls",
    access: "workspace",
    body: z.object({ items: z.array(NamedFile).min(1).max(500) }),
    response: z.object({
      items: z.array(NamedFile.extend({ url: z.string() })),
      expires_in: z.int(),
    }),
  }),
};
