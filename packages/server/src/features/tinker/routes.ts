import {
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
} from "@osmosis/protocol";
import { Hono } from "hono";
import type { z } from "zod";
import type { AppEnv } from "../../http/context.ts";
import { parse } from "../../http/parse.ts";
import type { Platform } from "../../platform.ts";
import { catalogueRoutes } from "./catalogue-routes.ts";
import { KEY_PREFIX, trainerKeyRoutesOf } from "./key-routes.ts";
import { readWireBody } from "./wire-body.ts";

/** The features of this server that clients adapt to. */
const CLIENT_CONFIG = {
  parallel_fwdbwd_chunks: true,
  proto_compress_fwdbwd: true,
  fwdbwd_max_chunk_len: 1024,
  fwdbwd_max_chunk_bytes_count: 5_000_000,
  sample_max_concurrent_requests: 200,
  create_model_via_load_weights: true,
  forward_temperature: true,
};

/** The Tinker wire below `/api/v1`: this server as a trainer for the SDKs that speak it. */
export function tinkerRoutes(platform: Platform): Hono<AppEnv> {
  const { tinker, accounts } = platform;
  const app = new Hono<AppEnv>();

  app.route("/", trainerKeyRoutesOf(platform));

  const wire = new Hono<AppEnv>();
  wire.get("/healthz", (c) => c.json({ status: "ok" }));
  wire.use(async (c, next) => {
    const key = c.req.header("x-api-key") ?? "";
    // A key is a token of ours, with the letters in front that the SDKs insist on.
    const token = key.startsWith(KEY_PREFIX) ? key.slice(KEY_PREFIX.length) : "";
    c.set("user", await accounts.userOfToken(token, { forTrainer: true }));
    await next();
  });

  /** A call with a JSON body. */
  const post = <Body>(
    path: string,
    schema: z.ZodType<Body>,
    answer: (owner: string, body: Body) => object | Promise<object>,
  ) =>
    wire.post(path, async (c) =>
      c.json(await answer(c.get("user").id, parse(schema, await readWireBody(c)))),
    );

  wire.get("/get_server_capabilities", async (c) => {
    const offered = await tinker.baseModels.list();
    const supported = offered.map(({ name, contextLength, vocabSize }) => ({
      model_name: name,
      max_context_length: contextLength,
      vocab_size: vocabSize,
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
    info_message: "Adapters of this server cover attention and MLP layers; train_unembed has no effect.",
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
    const request = parse(TinkerForwardBackward, await readWireBody(c));
    return c.json(tinker.forwardBackward(c.get("user").id, request));
  });
  wire.post("/forward", async (c) => {
    const { forward_input, ...rest } = parse(TinkerForward, await readWireBody(c));
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
    const { request_id: id } = parse(TinkerRetrieve, await readWireBody(c));
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

  wire.route("/", catalogueRoutes(platform));

  // Copies the routes, so it comes last.
  app.route(TINKER_PREFIX, wire);
  return app;
}
