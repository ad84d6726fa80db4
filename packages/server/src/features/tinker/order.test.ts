import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { zstdCompressSync } from "node:zlib";
import { extract } from "tar";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { z } from "zod";
import { readConfig } from "../../config.ts";
import { until } from "../../testing-workspace.ts";
import { createEngineHost } from "./engine-host.ts";
import { mintKey, startTrainerServer, type TrainerServer } from "./testing.ts";

vi.setConfig({ testTimeout: 120_000 });

type Answer = { readonly status: number; readonly body: Record<string, unknown> };

/** A client of one server. */
function client({ server, apiKey }: Pick<TrainerServer, "server" | "apiKey">) {
  const call = async (path: string, json?: object): Promise<Answer> => {
    const response = await fetch(`${server.url}/api/v1${path}`, {
      method: json === undefined ? "GET" : "POST",
      headers: { "x-api-key": apiKey, "content-type": "application/json" },
      ...(json !== undefined && { body: JSON.stringify(json) }),
    });
    return { status: response.status, body: z.looseObject({}).parse(await response.json()) };
  };
  const start = async (path: string, json: object) =>
    z.object({ request_id: z.string() }).parse((await call(path, json)).body).request_id;
  const retrieve = (request_id: string) => call("/retrieve_future", { request_id });
  const result = async (path: string, json: object) => (await retrieve(await start(path, json))).body;
  const newSession = async () =>
    z
      .object({ session_id: z.string() })
      .parse((await call("/create_session", { tags: [], sdk_version: "test" })).body).session_id;
  const newModel = async (lora_config: object = { rank: 4, seed: 3 }) => {
    const session_id = await newSession();
    const wanted = { session_id, model_seq_id: 0, base_model: "osmosis/tiny", lora_config };
    const created = await result("/create_model", wanted);
    return { session_id, ...z.looseObject({ model_id: z.string().default("") }).parse(created) };
  };
  return { call, start, retrieve, result, newSession, newModel };
}

let trainer: TrainerServer;
let wire: ReturnType<typeof client>;
beforeAll(async () => {
  trainer = await startTrainerServer();
  wire = client(trainer);
});
afterAll(() => trainer[Symbol.asyncDispose]());

const tensor = (data: number[], dtype: string) => ({ data, dtype, shape: [data.length] });
const INPUT = {
  data: [
    {
      model_input: { chunks: [{ type: "encoded_text", tokens: [1, 2, 3, 4] }] },
      loss_fn_inputs: {
        target_tokens: tensor([2, 3, 4, 5], "int64"),
        weights: tensor([0, 0, 1, 1], "float32"),
      },
    },
  ],
  loss_fn: "cross_entropy",
};

test("a model that is asked for again when its promise is forgotten is the same one, with what it has learned", async () => {
  const session_id = await wire.newSession();
  const wanted = { session_id, model_seq_id: 0, base_model: "osmosis/tiny", lora_config: { rank: 4 } };
  const made = await wire.result("/create_model", wanted);
  const { model_id } = z.looseObject({ model_id: z.string() }).parse(made);
  await wire.result("/forward_backward", { model_id, seq_id: 1, forward_backward_input: INPUT });
  await wire.result("/optim_step", { model_id, seq_id: 2, adam_params: { learning_rate: 0.05 } });
  const before = await wire.result("/forward", { model_id, seq_id: 3, forward_input: INPUT });
  trainer.server.advance(61_000);
  await wire.call("/session_heartbeat", { session_id });
  await trainer.server.platform.tinker.sweep();
  expect((await wire.retrieve(`${model_id}:0`)).status).toBe(410);
  expect(await wire.result("/create_model", wanted)).toEqual(made);
  expect(await wire.result("/forward", { model_id, seq_id: 4, forward_input: INPUT })).toEqual(before);
});

test("a model whose session ends before it is made is not made", async () => {
  const { platform } = trainer.server;
  const { tinker, owner } = platform;
  const session = tinker.sessions.create(owner.id);
  const { request_id } = tinker.createModel(owner.id, {
    session_id: session.id,
    model_seq_id: 0,
    base_model: "osmosis/tiny",
  });
  await tinker.sessions.close(session);
  expect(await tinker.retrieve(owner.id, request_id)).toMatchObject({
    type: "failed",
    failure: { category: "user", error: expect.stringContaining("has ended") },
  });
  expect(session.models.size).toBe(0);
});

test("a request whose predecessor never comes ends with the number that is missing, and may be sent again", async () => {
  const { session_id, model_id } = await wire.newModel();
  const step = { model_id, seq_id: 2, adam_params: { learning_rate: 0.01 } };
  const early = await wire.start("/optim_step", step);
  for (let minute = 0; minute < 6; minute++) {
    trainer.server.advance(60_000);
    await wire.call("/session_heartbeat", { session_id });
    await trainer.server.platform.tinker.sweep();
  }
  const { body } = await wire.retrieve(early);
  expect(body).toMatchObject({
    category: "user",
    error: expect.stringContaining("for 1, which was never sent"),
  });
  await wire.result("/forward_backward", { model_id, seq_id: 1, forward_backward_input: INPUT });
  expect(await wire.result("/optim_step", step)).toMatchObject({ metrics: { updated: 1 } });
});

test("an adapter is trained in the layers that were asked for, and one of no layers is refused", async () => {
  const lossAfter = async (lora_config: object) => {
    const { model_id } = await wire.newModel({ rank: 4, seed: 3, ...lora_config });
    await wire.result("/forward_backward", { model_id, seq_id: 1, forward_backward_input: INPUT });
    await wire.result("/optim_step", { model_id, seq_id: 2, adam_params: { learning_rate: 0.05 } });
    const after = await wire.result("/forward", { model_id, seq_id: 3, forward_input: INPUT });
    await wire.result("/unload_model", { model_id });
    return z.looseObject({ metrics: z.looseObject({ "loss:sum": z.number() }) }).parse(after).metrics[
      "loss:sum"
    ];
  };
  const losses = [
    await lossAfter({}),
    await lossAfter({ train_mlp: false }),
    await lossAfter({ train_attn: false }),
    await lossAfter({ train_unembed: false }),
  ];
  expect(new Set(losses.slice(0, 3)).size).toBe(3);
  expect(losses[3]).toBe(losses[0]);
  expect(await wire.newModel({ rank: 4, train_mlp: false, train_attn: false })).toMatchObject({
    category: "user",
    error: expect.stringContaining("would train nothing"),
  });
});

test("a temperature of the loss divides the logits, and is refused unless it is above 0", async () => {
  const { model_id } = await wire.newModel();
  const forward = (seq_id: number, loss_fn_config: object) =>
    wire.result("/forward", { model_id, seq_id, forward_input: { ...INPUT, loss_fn_config } });
  const [plain, warm] = [await forward(1, { temperature: 1 }), await forward(2, { temperature: 3 })];
  expect(warm["metrics"]).not.toEqual(plain["metrics"]);
  expect(await forward(3, { temperature: 0 })).toMatchObject({ category: "user" });
});

test("Adam without its epsilon is refused before it makes weights that are not numbers", async () => {
  const { model_id } = await wire.newModel();
  const step = { model_id, seq_id: 1, adam_params: { learning_rate: 0.1, eps: 0 } };
  expect(await wire.call("/optim_step", step)).toMatchObject({
    status: 400,
    body: { field: "adam_params.eps" },
  });
});

test("every request may be compressed, none may unpack to more than its limit", async () => {
  const send = async (bytes: Uint8Array) => {
    const response = await fetch(`${trainer.server.url}/api/v1/create_session`, {
      method: "POST",
      headers: {
        "x-api-key": trainer.apiKey,
        "content-type": "application/json",
        "content-encoding": "zstd",
      },
      body: new Uint8Array(bytes),
    });
    return { status: response.status, text: await response.text() };
  };
  const small = await send(zstdCompressSync('{"tags":["a"]}'));
  expect([small.status, small.text]).toEqual([200, expect.stringContaining("session_id")]);
  const bomb = zstdCompressSync(Buffer.alloc(256 * 1024 * 1024));
  expect(bomb.length).toBeLessThan(100_000);
  const refused = await send(bomb);
  expect([refused.status, refused.text]).toEqual([413, expect.stringContaining("unpacks to more than")]);
});

test("lists come page by page", async () => {
  const { model_id } = await wire.newModel();
  for (const [index, path] of ["a", "b", "c"].entries()) {
    await wire.result("/save_weights", { model_id, seq_id: index + 1, path });
  }
  const page = (query: string) => wire.call(`/training_runs/${model_id}/checkpoints?${query}`);
  const ids = ({ body }: Answer) =>
    z.object({ checkpoints: z.array(z.looseObject({ checkpoint_id: z.string() })) }).parse(body).checkpoints;
  const all = ids(await page(""));
  const first = await page("limit=2");
  const second = await page("limit=2&offset=2");
  expect(all).toHaveLength(3);
  expect([...ids(first), ...ids(second)]).toEqual(all);
  expect(second.body["cursor"]).toEqual({ offset: 2, limit: 2, total_count: 3 });
  expect((await page("limit=-1")).status).toBe(400);
  const { body } = await wire.call("/sessions?limit=1");
  expect(body["sessions"]).toHaveLength(1);
  const { body: runs } = await wire.call("/training_runs?limit=1");
  expect(runs).toMatchObject({ training_runs: [{ training_run_id: model_id }] });
});

test("after a restart sessions are gone with a reason, and what was saved by name is loaded", async () => {
  const folder = await mkdtemp(join(tmpdir(), "osmosis-restart-"));
  const database = { kind: "folder", folder: join(folder, "database") } as const;
  try {
    const options = { config: { dataFolder: folder }, database };
    let path = "";
    let lost = { session_id: "", model_id: "" };
    let before = {};
    {
      await using first = await startTrainerServer(options);
      const old = client(first);
      lost = await old.newModel();
      const { model_id } = lost;
      await old.result("/forward_backward", { model_id, seq_id: 1, forward_backward_input: INPUT });
      await old.result("/optim_step", { model_id, seq_id: 2, adam_params: { learning_rate: 0.05 } });
      ({ path } = z
        .looseObject({ path: z.string() })
        .parse(await old.result("/save_weights", { model_id, seq_id: 3, path: "kept" })));
      before = await old.result("/forward", { model_id, seq_id: 4, forward_input: INPUT });
    }
    await using second = await startTrainerServer(options);
    const fresh = client({ server: second.server, apiKey: await mintKey(second.server) });
    for (const [route, body] of [
      ["/session_heartbeat", { session_id: lost.session_id }],
      ["/forward_backward", { model_id: lost.model_id, seq_id: 5, forward_backward_input: INPUT }],
      ["/asample", { ...ASAMPLE, sampling_session_id: `${lost.session_id}:sample:0`, seq_id: 1 }],
    ] as const) {
      expect(await fresh.call(route, body)).toMatchObject({
        status: 404,
        body: { code: "NOT_FOUND", hint: expect.stringContaining("end when their client is silent") },
      });
    }
    expect((await fresh.retrieve(`${lost.model_id}:4`)).status).toBe(410);
    const session_id = await fresh.newSession();
    const wanted = { session_id, model_seq_id: 0, path, optimizer: true };
    const { model_id } = z
      .looseObject({ model_id: z.string() })
      .parse(await fresh.result("/load_weights", wanted));
    expect(await fresh.result("/forward", { model_id, seq_id: 1, forward_input: INPUT })).toEqual(before);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test("whoever samples without a session is not disturbed by the end of the last session", async () => {
  await using own = await startTrainerServer();
  const alone = client(own);
  const session_id = await alone.newSession();
  const request_id = await alone.start("/asample", {
    ...ASAMPLE,
    base_model: "osmosis/tiny",
    num_samples: 64,
    sampling_params: { max_tokens: 29, stop: [] },
  });
  await until(() => own.server.platform.tinker.isSampling());
  await alone.call(`/sessions/${session_id}/finish`, {});
  expect((await alone.retrieve(request_id)).body).toMatchObject({ type: "sample" });
});

test("weights that are saved again under their name are sampled from as they are now", async () => {
  const { session_id, model_id } = await wire.newModel();
  let turn = 0;
  const next = (path: string, json: object) => wire.result(path, { model_id, seq_id: (turn += 1), ...json });
  const look = async (): Promise<unknown> => {
    const saved = await next("/save_weights", { path: "latest", overwrite: true });
    const { path: model_path } = z.looseObject({ path: z.string() }).parse(saved);
    const opened = await wire.call("/create_sampling_session", {
      session_id,
      sampling_session_seq_id: turn,
      model_path,
    });
    const sampled = await wire.result("/asample", {
      ...ASAMPLE,
      sampling_params: { max_tokens: 1, stop: [] },
      prompt_logprobs: true,
      sampling_session_id: opened.body["sampling_session_id"],
      seq_id: 1,
    });
    return z.looseObject({ prompt_logprobs: z.array(z.number().nullable()) }).parse(sampled).prompt_logprobs;
  };
  const before = await look();
  expect(await look()).toEqual(before);
  await next("/forward_backward", { forward_backward_input: INPUT });
  await next("/optim_step", { adam_params: { learning_rate: 0.05 } });
  expect(await look()).not.toEqual(before);
});

test("a tokenizer is read once, however often a text ends an answer", async () => {
  const { modelsFolder } = readConfig({ dataFolder: tmpdir() }, {});
  const { codecOf } = createEngineHost();
  const first = await codecOf(join(modelsFolder, "tiny-agent"));
  expect(await codecOf(join(modelsFolder, "tiny-agent"))).toBe(first);
  await expect(codecOf(join(tmpdir(), "no-model"))).rejects.toThrow();
  expect(await codecOf(join(modelsFolder, "tiny-agent"))).toBe(first);
});

test("an archive of saved weights holds their files as they are", async () => {
  const { model_id } = await wire.newModel();
  const saved = await wire.result("/save_weights_for_sampler", { model_id, seq_id: 1, path: "packed" });
  const { path } = z.looseObject({ path: z.string() }).parse(saved);
  const { tinker, owner } = trainer.server.platform;
  const { weights } = await tinker.checkpoints.find(path, owner.id);
  const url = `${trainer.server.url}/api/v1/training_runs/${model_id}/checkpoints/sampler_weights/packed/archive`;
  const response = await fetch(url, { headers: { "x-api-key": trainer.apiKey } });
  const folder = await mkdtemp(join(tmpdir(), "osmosis-archive-"));
  try {
    await pipeline(Readable.from([Buffer.from(await response.arrayBuffer())]), extract({ cwd: folder }));
    const names = await readdir(weights);
    expect((await readdir(folder)).toSorted()).toEqual(names.toSorted());
    for (const name of names) {
      expect(await readFile(join(folder, name))).toEqual(await readFile(join(weights, name)));
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

const ASAMPLE = {
  prompt: { chunks: [{ type: "encoded_text", tokens: [1, 2] }] },
  sampling_params: { max_tokens: 1 },
};
