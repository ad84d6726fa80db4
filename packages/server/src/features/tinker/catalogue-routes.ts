import { readdir } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { OsmosisError, TinkerWeightsInfo } from "@osmosis/protocol";
import { Hono, type Context } from "hono";
import { create } from "tar";
import { z } from "zod";
import type { AppEnv } from "../../http/context.ts";
import { parse, parseQuery } from "../../http/parse.ts";
import type { Platform } from "../../platform.ts";
import type { Checkpoint } from "./checkpoints.ts";
import { readWireBody } from "./wire-body.ts";

const Page = z.object({
  limit: z.coerce.number().int().min(0).max(1000).default(100),
  offset: z.coerce.number().int().min(0).default(0),
});

/** What a client's weights and sessions are: the lists of the wire, page by page, and what is said of one entry. */
export function catalogueRoutes({ tinker }: Platform): Hono<AppEnv> {
  const wire = new Hono<AppEnv>();
  const ownerOf = (c: Context<AppEnv>) => c.get("user").id;

  wire.post("/weights_info", async (c) => {
    const { tinker_path } = parse(TinkerWeightsInfo, await readWireBody(c));
    const { base_model, method } = await tinker.checkpoints.find(tinker_path, ownerOf(c));
    const isLora = method.type === "lora";
    return c.json({ base_model, is_lora: isLora, lora_rank: isLora ? method.rank : null });
  });
  wire.get("/checkpoints", async (c) => {
    const { items, cursor } = pageOf(c, await tinker.checkpoints.list(ownerOf(c)));
    return c.json({ checkpoints: items.map(checkpointView), cursor });
  });
  wire.get("/training_runs", async (c) => {
    const { items, cursor } = pageOf(c, runViews(await tinker.checkpoints.list(ownerOf(c))));
    return c.json({ training_runs: items, cursor });
  });
  wire.get("/training_runs/:id", async (c) => {
    const id = c.req.param("id");
    const [run] = runViews(await tinker.checkpoints.list(ownerOf(c), id));
    if (run === undefined) throw new OsmosisError("NOT_FOUND", `The run ${id} has saved nothing.`);
    return c.json(run);
  });
  wire.get("/training_runs/:id/checkpoints", async (c) => {
    const { items, cursor } = pageOf(c, await tinker.checkpoints.list(ownerOf(c), c.req.param("id")));
    return c.json({ checkpoints: items.map(checkpointView), cursor });
  });
  wire.delete("/training_runs/:id/checkpoints/:kind/:name", async (c) => {
    const { id, kind, name } = c.req.param();
    await tinker.checkpoints.remove(`tinker://${id}/${kind}/${name}`, ownerOf(c));
    return c.body(null, 204);
  });
  wire.get("/training_runs/:id/checkpoints/:kind/:name/archive", async (c) => {
    const { id, kind, name } = c.req.param();
    const { weights } = await tinker.checkpoints.find(`tinker://${id}/${kind}/${name}`, ownerOf(c));
    const archive = await packed(weights);
    return c.body(archive, 200, { "content-type": "application/gzip" });
  });
  wire.get("/sessions", (c) => {
    const { items, cursor } = pageOf(c, tinker.sessions.list(ownerOf(c)));
    return c.json({ sessions: items.map(({ id }) => id), cursor });
  });
  wire.get("/sessions/:id", (c) => {
    const { models, samplings } = tinker.sessions.get(ownerOf(c), c.req.param("id"));
    return c.json({ training_run_ids: [...models.keys()], sampler_ids: [...samplings.keys()] });
  });
  return wire;
}

/** A folder's files as a compressed tar archive, read while it is sent: whole weights may have gigabytes. */
async function packed(folder: string): Promise<ReadableStream<Uint8Array>> {
  const gzip = createGzip({ level: 1 });
  // What goes wrong breaks the answer off; whoever reads it knows that it is not whole.
  pipeline(create({ cwd: folder, portable: true }, await readdir(folder)), gzip).catch(() => {});
  // Node's and the DOM's declarations of the same web stream differ in name only.
  return Readable.toWeb(gzip) as ReadableStream<Uint8Array>;
}

function pageOf<Item>(c: Context<AppEnv>, all: readonly Item[]) {
  const { limit, offset } = parseQuery(c, Page);
  return {
    items: all.slice(offset, offset + limit),
    cursor: { offset, limit, total_count: all.length },
  };
}

function checkpointView(checkpoint: Checkpoint) {
  const { kind, name, created_at: time, path, size_bytes } = checkpoint;
  const type = kind === "weights" ? "training" : "sampler";
  return {
    checkpoint_id: `${kind}/${name}`,
    checkpoint_type: type,
    time,
    tinker_path: path,
    size_bytes,
    public: false,
  };
}

/** One entry for each run that saved something; `found` has the newest first. */
function runViews(found: readonly Checkpoint[]) {
  return [...Map.groupBy(found, ({ run_id }) => run_id)].map(([id, own]) => {
    const newest = (kind: Checkpoint["kind"]) => {
      const checkpoint = own.find((one) => one.kind === kind);
      return checkpoint === undefined ? null : checkpointView(checkpoint);
    };
    const method = own[0]?.method;
    return {
      training_run_id: id,
      base_model: own[0]?.base_model ?? "",
      model_owner: own[0]?.owner ?? "",
      is_lora: method?.type === "lora",
      lora_rank: method?.type === "lora" ? method.rank : null,
      corrupted: false,
      last_request_time: own[0]?.created_at ?? "",
      last_checkpoint: newest("weights"),
      last_sampler_checkpoint: newest("sampler_weights"),
    };
  });
}
