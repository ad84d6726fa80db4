import { promisify } from "node:util";
import { zstdDecompress } from "node:zlib";
import {
  OsmosisError,
  TINKER_PREFIX,
  TINKER_PROTOBUF,
  TinkerCreateModel,
  TinkerCreateSamplingSession,
  TinkerCreateSession,
  TinkerForward,
  TinkerForwardBackward,
  TinkerHeartbeat,
  TinkerLoadWeights,
  TinkerModelOnly,
  TinkerOptimStep,
  TinkerRetrieve,
  TinkerSample,
  TinkerSaveForSampler,
  TinkerSaveWeights,
  TinkerWeightsInfo,
  decodeForwardBackward,
} from "@osmosis/protocol";
import { Hono, type Context } from "hono";
import type { z } from "zod";
import type { AppEnv } from "../../http/context.ts";
import { parse, parseBody } from "../../http/parse.ts";
import { readBytes } from "../../http/read-text.ts";
import { requireUser } from "../../http/require-user.ts";
import type { Platform } from "../../platform.ts";
import type { Checkpoint } from "./checkpoints.ts";

/** What a client may send at once; it is told to cut its data at 5 MB. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

const KEY_PREFIX = "tml-";
const KEY_DAYS = 365;

const decompress = promisify(zstdDecompress);

/** The features of this server that clients adapt to. */
const CLIENT_CONFIG = {
  parallel_fwdbwd_chunks: true,
  proto_compress_fwdbwd: true,
  fwdbwd_max_chunk_len: 1024,
  fwdbwd_max_chunk_bytes_count: 5_000_000,
  sample_max_concurrent_requests: 200,
  create_model_via_load_weights: true,
};

/** The Tinker wire below `/api/v1`: this server as a trainer for the SDKs that speak it. */
export function tinkerRoutes(platform: Platform): Hono<AppEnv> {
  const { tinker, accounts } = platform;
  const app = new Hono<AppEnv>();

  app.post("/api/tinker-keys", requireUser(platform), async (c) => {
    const minted = await accounts.tokens.mint({
      userId: c.get("user").id,
      kind: "personal",
      name: "Tinker API key",
      lifetimeDays: KEY_DAYS,
    });
    const { token, tokenId, expiresAt } = minted;
    return c.json(
      { api_key: `${KEY_PREFIX}${token}`, token_id: tokenId, expires_at: expiresAt.toISOString() },
      201,
    );
  });

  const wire = new Hono<AppEnv>();
  wire.get("/healthz", (c) => c.json({ status: "ok" }));
  wire.use(async (c, next) => {
    const key = c.req.header("x-api-key") ?? "";
    // A key is a token of ours, with the letters in front that the SDKs insist on.
    c.set("user", await accounts.userOfToken(key.startsWith(KEY_PREFIX) ? key.slice(KEY_PREFIX.length) : ""));
    await next();
  });

  /** A call with a JSON body. */
  const post = <Body>(
    path: string,
    schema: z.ZodType<Body>,
    answer: (owner: string, body: Body) => object | Promise<object>,
  ) => wire.post(path, async (c) => c.json(await answer(c.get("user").id, await parseBody(c, schema))));

  wire.get("/get_server_capabilities", async (c) => {
    const offered = await tinker.baseModels.list();
    const supported = offered.map(({ name, contextLength }) => ({
      model_name: name,
      max_context_length: contextLength,
      trainable: true,
      sampleable: true,
    }));
    return c.json({ supported_models: supported });
  });
  wire.post("/client/config", (c) => c.json(CLIENT_CONFIG));
  wire.post("/client/dynamic_config", (c) => c.json({ refresh_interval_sec: 300 }));
  wire.post("/telemetry", (c) => c.json({ status: "accepted" }));

  post("/create_session", TinkerCreateSession, (owner) => ({
    type: "create_session",
    session_id: tinker.sessions.create(owner).id,
  }));
  post("/session_heartbeat", TinkerHeartbeat, (owner, { session_id }) => {
    tinker.sessions.get(owner, session_id);
    return { type: "session_heartbeat" };
  });
  wire.post("/sessions/:id/finish", async (c) => {
    await tinker.sessions.close(tinker.sessions.get(c.get("user").id, c.req.param("id")));
    return c.json({});
  });

  post("/create_model", TinkerCreateModel, (owner, body) => tinker.createModel(owner, body));
  post("/unload_model", TinkerModelOnly, (owner, { model_id }) => tinker.unloadModel(owner, model_id));
  post("/get_info", TinkerModelOnly, (owner, { model_id }) => tinker.info(owner, model_id));
  wire.post("/forward_backward", async (c) => {
    const request = parse(TinkerForwardBackward, await largeBody(c));
    return c.json(tinker.forwardBackward(c.get("user").id, request));
  });
  wire.post("/forward", async (c) => {
    const { forward_input, ...rest } = parse(TinkerForward, await largeBody(c));
    const request = { ...rest, forward_backward_input: forward_input, forward_only: true };
    return c.json(tinker.forwardBackward(c.get("user").id, request));
  });
  post("/optim_step", TinkerOptimStep, (owner, body) => tinker.optimStep(owner, body));
  post("/save_weights", TinkerSaveWeights, (owner, body) => tinker.saveWeights(owner, body));
  post("/save_weights_for_sampler", TinkerSaveForSampler, (owner, body) =>
    tinker.saveForSampler(owner, body),
  );
  post("/load_weights", TinkerLoadWeights, (owner, body) => tinker.loadWeights(owner, body));

  post("/create_sampling_session", TinkerCreateSamplingSession, async (owner, body) => ({
    type: "create_sampling_session",
    sampling_session_id: await tinker.createSamplingSession(owner, body),
  }));
  wire.get("/samplers/:id", (c) => {
    const { id, base, modelPath } = tinker.sessions.sampling(c.get("user").id, c.req.param("id"));
    return c.json({ sampler_id: id, base_model: base.name, model_path: modelPath ?? null });
  });
  post("/asample", TinkerSample, (owner, body) => tinker.sample(owner, body));

  wire.post("/retrieve_future", async (c) => {
    const { request_id: id } = await parseBody(c, TinkerRetrieve);
    const outcome = await tinker.retrieve(c.get("user").id, id);
    switch (outcome.type) {
      case "pending":
        return c.json({ type: "try_again", request_id: id, queue_state: "active" });
      case "failed":
        return c.json(outcome.failure);
      case "expired":
        return c.json({ error: `There is no promise ${id} any more.`, code: "NOT_FOUND" }, 410);
      case "done": {
        const { body, protobuf } = outcome.result;
        const isWanted = c.req.header("accept")?.includes(TINKER_PROTOBUF) === true;
        if (!isWanted || protobuf === undefined) return c.json(body);
        return new Response(new Uint8Array(protobuf()), { headers: { "content-type": TINKER_PROTOBUF } });
      }
    }
  });

  post("/weights_info", TinkerWeightsInfo, async (owner, { tinker_path }) => {
    const { base_model, method } = await tinker.checkpoints.find(tinker_path, owner);
    const isLora = method.type === "lora";
    return { base_model, is_lora: isLora, lora_rank: isLora ? method.rank : null };
  });
  wire.get("/checkpoints", async (c) => {
    const found = await tinker.checkpoints.list(c.get("user").id);
    return c.json({ checkpoints: found.map(checkpointView), cursor: wholeList(found.length) });
  });
  wire.get("/training_runs", async (c) => {
    const runs = runViews(await tinker.checkpoints.list(c.get("user").id));
    return c.json({ training_runs: runs, cursor: wholeList(runs.length) });
  });
  wire.get("/training_runs/:id", async (c) => {
    const id = c.req.param("id");
    const [run] = runViews(await tinker.checkpoints.list(c.get("user").id, id));
    if (run === undefined) throw new OsmosisError("NOT_FOUND", `The run ${id} has saved nothing.`);
    return c.json(run);
  });
  wire.get("/training_runs/:id/checkpoints", async (c) => {
    const found = await tinker.checkpoints.list(c.get("user").id, c.req.param("id"));
    return c.json({ checkpoints: found.map(checkpointView) });
  });
  wire.delete("/training_runs/:id/checkpoints/:kind/:name", async (c) => {
    const { id, kind, name } = c.req.param();
    await tinker.checkpoints.remove(`tinker://${id}/${kind}/${name}`, c.get("user").id);
    return c.body(null, 204);
  });

  // Copies the routes, so it comes last.
  app.route(TINKER_PREFIX, wire);
  return app;
}

/** The body of a request that brings data: JSON or protocol buffers, either of them compressed or not. */
async function largeBody(c: Context<AppEnv>): Promise<unknown> {
  const encoding = c.req.header("content-encoding") ?? "identity";
  if (encoding !== "identity" && encoding !== "zstd") {
    throw new OsmosisError("VALIDATION", `The content encoding ${encoding} is not supported; zstd is.`);
  }
  const sent = await readBytes(c.req.raw, MAX_BODY_BYTES);
  const bytes = encoding === "zstd" ? await decompressed(sent) : sent;
  if (c.req.header("content-type")?.includes(TINKER_PROTOBUF) === true) return decodeForwardBackward(bytes);
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new OsmosisError("VALIDATION", "The request body is not JSON.");
  }
}

async function decompressed(bytes: Uint8Array): Promise<Uint8Array> {
  try {
    return await decompress(bytes, { maxOutputLength: MAX_BODY_BYTES });
  } catch (error) {
    throw new OsmosisError("VALIDATION", "The body is not zstd, or too large when unpacked.", {
      cause: error,
    });
  }
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

function wholeList(count: number) {
  return { offset: 0, limit: count, total_count: count };
}
