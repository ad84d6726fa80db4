import type { DatasetRow, RolloutRequest } from "@osmosis/protocol";
import { afterEach, describe, expect, test } from "vitest";
import { loadTestCodec } from "../../test/chat-codec.ts";
import { fastClock } from "../../test/fast-clock.ts";
import { rolloutServer } from "../../test/rollout-server.ts";
import type { AgentContext, AgentEnd, RolloutServerOptions } from "../../test/rollout-server.ts";
import { samplerOf } from "../../test/scripted-sampler.ts";
import type { ScriptedSampler } from "../../test/scripted-sampler.ts";
import { openGateway } from "../gateway/gateway.ts";
import { driveRollout } from "./drive-rollout.ts";
import type { DriveRolloutOptions } from "./drive-rollout.ts";
import { RolloutServerError, connectRolloutServer } from "./server-client.ts";

const codec = await loadTestCodec();
const opened: AsyncDisposable[] = [];

afterEach(async () => {
  for (const server of opened.splice(0).reverse()) await server[Symbol.asyncDispose]();
});

const row: DatasetRow = {
  row_index: 3,
  messages: [{ role: "user", content: "2 times 3?" }],
  label: "6",
  metadata: null,
};

const saysSix = () => samplerOf(codec, () => ({ answer: "6" }));

async function setUp(options: RolloutServerOptions, sampler: ScriptedSampler = saysSix()) {
  const server = await rolloutServer(options);
  opened.push(server);
  const clock = fastClock();
  const gateway = await openGateway({ policy: { type: "local", name: "tiny", sampler, codec }, clock });
  opened.push(gateway);
  const client = connectRolloutServer({
    baseUrl: server.url,
    fetch,
    clock,
    ...(options.bearer === undefined ? {} : { apiKey: options.bearer }),
  });
  const drive = (changes: Partial<DriveRolloutOptions> = {}) =>
    driveRollout({
      server: client,
      gateway,
      row,
      identity: { runId: "run", phase: "train", step: 2, sampleIndex: 1 },
      seed: 7,
      sampling: { temperature: 1, topP: 1, maxTokens: 50, wins: "run" },
      timeouts: { agentSeconds: 20, graderSeconds: 5, graceSeconds: 5 },
      grade: true,
      clock,
      signal: new AbortController().signal,
      ...changes,
    });
  return { server, drive, clock, client };
}

/** An agent that asks once and is graded against the label. */
async function agent({ request, chat }: AgentContext): Promise<AgentEnd> {
  const answer = await chat({ messages: request.initial_messages });
  const messages = [...request.initial_messages, answer];
  return {
    sample: { messages, reward: answer.content === request.label ? 1 : 0, metrics: { calls: 1, none: null } },
  };
}

/** An agent that survives the model's failure, and a grader that does not. */
async function failsToGrade(context: AgentContext): Promise<AgentEnd> {
  await agent(context).catch(() => undefined);
  return { status: "failure", err_phase: "grader", err_message: "no rubric" };
}

const busyAgent = ({ signal }: AgentContext): Promise<AgentEnd> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));

test("a rollout that succeeds is recorded with its tokens, reward and conversation", async () => {
  const { server, drive } = await setUp({ agent, bearer: "server-key" });
  const record = await drive();
  expect(record).toMatchObject({
    rollout_id: "run-train-s2-r3-n1",
    phase: "train",
    step: 2,
    row_index: 3,
    sample_index: 1,
    outcome: "ok",
    reward: 1,
    error: null,
    label: "6",
    messages: [...row.messages, { role: "assistant", content: "6" }],
    metrics: { calls: 1 },
    model_calls: 1,
    prefix_breaks: 0,
  });
  const [sequence] = record.sequences;
  expect(codec.decode(sequence?.tokens ?? [])).toBe(
    "<|im_start|>user\n2 times 3?<|im_end|>\n<|im_start|>assistant\n6<|im_end|>",
  );
  expect(record.completion_tokens).toBe(sequence?.mask.filter((bit) => bit === 1).length);
  expect(server.requests[0]).toMatchObject({
    agent_timeout_sec: 20,
    grader_timeout_sec: 5,
    grade: true,
    extra_fields: { run_id: "run", step: 2 },
  });
  expect(server.cancelled).toEqual([]);
});

test.each(["callback", "callback-undeclared"] as const)(
  "a server of the form %s is understood",
  async (form) => {
    const { server, drive, client } = await setUp({ agent, form });
    expect(await drive()).toMatchObject({ outcome: "ok", reward: 1, model_calls: 1 });
    expect(client.form()).toBe("callback");
    const next = await drive({ identity: { runId: "run", phase: "train", step: 2, sampleIndex: 2 } });
    expect(next).toMatchObject({ rollout_id: "run-train-s2-r3-n2", outcome: "ok", reward: 1 });
    expect(server.requests.at(-1)?.completion_callback_url).toContain(
      "/v1/rollouts/run-train-s2-r3-n2/completion",
    );
  },
);

function failing(end: AgentEnd) {
  return setUp({ agent: () => ({ status: "failure", ...end }), form: "callback" });
}

test("a failure of the callback form keeps its place: workflow or grader", async () => {
  const workflow = await failing({ err_category: "agent_error", err_message: "boom", err_phase: "workflow" });
  expect(await workflow.drive()).toMatchObject({ outcome: "agent", reward: null, error: "boom" });
  const grader = await failing({ err_message: "no label", err_phase: "grader" });
  expect(await grader.drive()).toMatchObject({ outcome: "grader", reward: null, error: "no label" });
});

test.each([
  ["a reward that is a text", { status: "success", sample: { messages: [], reward: "one" } }, "grader"],
  ["what is no report", ["done"], "sandbox"],
] as const)(
  "a server of the callback form that posts %s ends the rollout at once",
  async (_, body, outcome) => {
    const { drive } = await setUp({
      form: "callback",
      agent: async (context) => {
        const { grader_callback_url: url, controller_api_key: key } = context.request;
        const headers = { authorization: `Bearer ${key}` };
        await fetch(url ?? "", { method: "POST", headers, body: JSON.stringify(body) });
        return busyAgent(context);
      },
    });
    // At the deadline it would be a timeout.
    expect(await drive()).toMatchObject({ outcome, reward: null });
  },
);

describe("every end has one outcome:", () => {
  const sample = { messages: [], reward: 0.5 };
  const ends: [string, AgentEnd, Record<string, unknown>][] = [
    ["success", { sample }, { outcome: "ok", reward: 0.5 }],
    ["success without a sample", { sample: null }, { outcome: "agent", reward: null }],
    ["success without a reward", { sample: { messages: [] } }, { outcome: "grader", reward: null }],
    [
      "a sample to be left out",
      { sample: { messages: [], remove_sample: true } },
      { outcome: "ok", reward: null, error: null },
    ],
    ["a workflow that throws", { status: "failure", err_category: "agent_error" }, { outcome: "agent" }],
    ["a workflow that times out", { status: "failure", err_category: "timeout" }, { outcome: "timeout" }],
    ["a malformed sample", { status: "failure", err_category: "validation_error" }, { outcome: "agent" }],
    [
      "a chat endpoint that fails",
      { status: "failure", err_category: "http_error" },
      { outcome: "provider" },
    ],
    [
      "a grader that throws",
      { status: "failure", err_category: "agent_error", err_phase: "grader" },
      { outcome: "grader", reward: null },
    ],
    ["an unknown category", { status: "failure", err_category: "gremlins" }, { outcome: "agent" }],
    [
      "a cancelled rollout",
      { status: "cancelled", err_message: "by hand" },
      { outcome: "cancelled", error: "by hand" },
    ],
    ["an expired lease", { status: "cancelled", err_category: "lease_expired" }, { outcome: "lost" }],
  ];
  test.each(ends)("%s", async (_name, end, expected) => {
    const { drive } = await setUp({ agent: () => end });
    expect(await drive()).toMatchObject({ reward: null, ...expected });
  });

  test("a model that was cut makes a truncated rollout, whose reward counts", async () => {
    const { drive } = await setUp(
      { agent },
      samplerOf(codec, () => ({ answer: "6", ends: false })),
    );
    expect(await drive()).toMatchObject({ outcome: "truncated", reward: 1 });
  });

  test("a conversation that outgrew the context and was graded is truncated, too", async () => {
    const { drive } = await setUp({
      agent: async ({ request, chat }) => {
        const messages = [...request.initial_messages, await chat({ messages: request.initial_messages })];
        messages.push({ role: "user", content: "more ".repeat(400) });
        await expect(chat({ messages })).rejects.toThrow();
        return { sample: { messages, reward: 0 } };
      },
    });
    expect(await drive()).toMatchObject({ outcome: "truncated", reward: 0, error: null, model_calls: 1 });
  });

  test("a model that fails wins over the agent's own error", async () => {
    const broken = samplerOf(codec, () => {
      throw new Error("no GPU");
    });
    const { drive } = await setUp({ agent }, broken);
    expect(await drive()).toMatchObject({
      outcome: "provider",
      reward: null,
      error: "The model could not be sampled: no GPU",
    });
  });

  test("a request that the gateway refused is the agent's failure, not the model's", async () => {
    const { drive } = await setUp({
      agent: async ({ chat }) => {
        const text = await chat({ messages: [] }).then(JSON.stringify, (error: Error) => error.message);
        return { status: "failure", err_category: "http_error", err_message: text };
      },
    });
    expect(await drive()).toMatchObject({
      outcome: "agent",
      error: expect.stringContaining("invalid_value"),
    });
  });

  test("a grader that fails stays a grader's failure", async () => {
    const broken = samplerOf(codec, () => {
      throw new Error("no GPU");
    });
    const { drive } = await setUp({ agent: failsToGrade }, broken);
    expect(await drive()).toMatchObject({ outcome: "grader", error: "no rubric" });
  });

  test.each([
    [`"reward":1e999`, "sample.reward is Infinity"],
    [`"reward":"high"`, 'sample.reward is "high"'],
    [`"reward":1,"metrics":{"words":"many"}`, 'sample.metrics.words is "many"'],
    [`"reward":null`, "The grader gave no reward."],
    [`"reward":7`, "The grader gave the reward 7, outside of [advanced].reward_range = [0, 1]."],
    [`"reward":-0.5`, "The grader gave the reward -0.5, outside of [advanced].reward_range = [0, 1]."],
  ])("a sample with %s is a failure of the grader, which names the value", async (fields, message) => {
    const reply = `{"status":"success","sample":{"messages":[],${fields}}}`;
    const headers = { "content-type": "application/json" };
    const { drive } = await setUp({ pollGate: () => new Response(reply, { headers }) });
    expect(await drive({ rewardRange: [0, 1] })).toMatchObject({
      outcome: "grader",
      reward: null,
      error: expect.stringContaining(message),
    });
  });

  test.each([
    ['"reward":1e308', "gave the reward 1e+308"],
    ['"reward":1,"metrics":{"a\\nb":1}', 'The metric "a\\nb" has a name that cannot be shown'],
    [`"reward":1,"metrics":{"${"x".repeat(100_000)}":1}`, "has a name that cannot be shown"],
    ['"reward":1,"metrics":{"":1}', 'The metric "" has a name that cannot be shown'],
    ['"reward":1,"metrics":{"size":1e308}', 'The metric "size" is 1e+308, which cannot be averaged'],
    [
      `"reward":1,"metrics":{${Array.from({ length: 10_000 }, (_, n) => `"m${n}":1`).join()}}`,
      "The rollout gave 10000 metrics; a rollout may have 256.",
    ],
    [
      `"reward":1,"metrics":{${Array.from({ length: 10_000 }, (_, n) => `"m${n}":"no"`).join()}}`,
      "sample.metrics.m0 is",
    ],
  ])("what no curve can hold is a failure of the grader, briefly told: %.40s", async (fields, message) => {
    const reply = `{"status":"success","sample":{"messages":[],${fields}}}`;
    const headers = { "content-type": "application/json" };
    const { drive } = await setUp({ pollGate: () => new Response(reply, { headers }) });
    const record = await drive();
    expect(record).toMatchObject({ outcome: "grader", reward: null, metrics: {} });
    expect(record.error).toContain(message);
    expect(record.error?.length).toBeLessThan(1000);
  });

  test("metrics with names in any script are kept", async () => {
    const sample = { messages: [], reward: 1, metrics: { "größe/ß": 1, "日本 語": -2, "a/b_c-d.e": 1e6 } };
    const { drive } = await setUp({ pollGate: () => Response.json({ status: "success", sample }) });
    expect(await drive()).toMatchObject({ outcome: "ok", metrics: sample.metrics });
  });

  test("an error of many megabytes is cut", async () => {
    const reply = { status: "failure", err_message: "x".repeat(5_000_000), err_category: "agent_error" };
    const { drive } = await setUp({ pollGate: () => Response.json(reply) });
    const { error } = await drive();
    expect(error?.length).toBeLessThan(4100);
    expect(error).toContain("(4996000 more characters)");
  });

  test("a sample whose messages cannot be read is the agent's failure", async () => {
    const reply = { status: "success", sample: { messages: "none", reward: 1 } };
    const { drive } = await setUp({ pollGate: () => Response.json(reply) });
    expect(await drive()).toMatchObject({ outcome: "agent", error: expect.stringContaining('"none"') });
  });

  test("rewards at the ends of the range count", async () => {
    const { drive } = await setUp({ agent });
    expect(await drive({ rewardRange: [1, 2] })).toMatchObject({ outcome: "ok", reward: 1 });
  });

  test.each([
    ["that polls", {}],
    ["that waits for callbacks", { form: "callback" as const }],
  ])("a rollout %s is lost at once when the life of its server ends", async (_name, more) => {
    const life = new AbortController();
    const { client, drive, server } = await setUp({ agent: busyAgent, ...more });
    const entered: string[] = [];
    const lives = {
      async enter(rolloutId: string) {
        entered.push(rolloutId);
        return life.signal;
      },
      hasTaken: () => true,
    };
    const driven = drive({
      server: { ...client, lives },
      timeouts: { agentSeconds: 3000, graderSeconds: 5 },
    });
    await expect.poll(() => server.load.now).toBe(1);
    life.abort(new RolloutServerError("unreachable", "The rollout server died: exit code 9"));
    expect(await driven).toMatchObject({
      outcome: "lost",
      reward: null,
      error: "The rollout server died: exit code 9",
      rollout_id: entered.at(-1),
    });
  });

  test("a server that refuses is a broken sandbox", async () => {
    const { drive } = await setUp({ gate: () => Response.json({ detail: "no workflow" }, { status: 500 }) });
    expect(await drive()).toMatchObject({
      outcome: "sandbox",
      error: expect.stringContaining("no workflow"),
    });
  });

  test("an answer that is no result is a broken sandbox, and the rollout is cancelled", async () => {
    const { drive, server } = await setUp({ pollGate: () => new Response("<html>") });
    expect(await drive()).toMatchObject({ outcome: "sandbox" });
    expect(server.cancelled).toEqual(["run-train-s2-r3-n1"]);
  });

  test("a server that forgot the rollout lost it", async () => {
    const { drive } = await setUp({ pollGate: () => Response.json({}, { status: 404 }) });
    expect(await drive()).toMatchObject({ outcome: "lost" });
  });

  test("a server that is gone lost the rollout, after two more tries", async () => {
    const { drive, server, clock } = await setUp({ agent });
    await server[Symbol.asyncDispose]();
    expect(await drive()).toMatchObject({
      outcome: "lost",
      error: expect.stringContaining("gave no answer"),
    });
    expect(clock.slept.slice(0, 2)).toEqual([100, 500]);
  });
});

test("a server without room is asked again after as long as it says", async () => {
  const waits = ["2", "0", "garbage"];
  const { drive, clock } = await setUp({
    agent,
    gate: () => {
      const wait = waits.shift();
      return wait === undefined
        ? undefined
        : Response.json({}, { status: 429, headers: { "retry-after": wait } });
    },
  });
  expect(await drive()).toMatchObject({ outcome: "ok" });
  expect(clock.slept.slice(0, 3)).toEqual([2000, 50, 1000]);
});

test("a server that never has room ends the rollout at the deadline", async () => {
  const { drive } = await setUp({ gate: () => Response.json({}, { status: 429 }) });
  const timeouts = { agentSeconds: 0.1, graderSeconds: 0.1, graceSeconds: 0.1 };
  expect(await drive({ timeouts })).toMatchObject({
    outcome: "sandbox",
    error: expect.stringContaining("no room"),
  });
});

test("a rollout that does not end is cancelled at the deadline of agent, grader and grace", async () => {
  const { drive, server } = await setUp({ agent: busyAgent });
  const timeouts = { agentSeconds: 0.1, graderSeconds: 0.1, graceSeconds: 0.1 };
  expect(await drive({ timeouts })).toMatchObject({ outcome: "timeout", reward: null });
  expect(server.cancelled).toEqual(["run-train-s2-r3-n1"]);
});

test("the end of the run cancels the rollout and throws the run's reason", async () => {
  const started = Promise.withResolvers<void>();
  const { drive, server } = await setUp({
    agent: (context) => {
      started.resolve();
      return busyAgent(context);
    },
  });
  const run = new AbortController();
  const driven = drive({ signal: run.signal });
  await started.promise;
  run.abort(new Error("stopped by the user"));
  await expect(driven).rejects.toThrow("stopped by the user");
  expect(server.cancelled).toEqual(["run-train-s2-r3-n1"]);
});

test("an id that an older server process still runs is cancelled, and the next attempt has an id of its own", async () => {
  const seen: (string | null | undefined)[] = [];
  const { drive, server } = await setUp({
    agent,
    gate: ({ rollout_id }: RolloutRequest) => {
      seen.push(rollout_id);
      return seen.length === 1 ? Response.json({}, { status: 409 }) : undefined;
    },
  });
  expect(await drive()).toMatchObject({ rollout_id: "run-train-s2-r3-n1-a1", outcome: "ok", reward: 1 });
  expect(server.cancelled).toEqual(["run-train-s2-r3-n1"]);
});

test("a rollout that is not to be graded is ok without a reward", async () => {
  const { drive } = await setUp({ agent: () => ({ sample: { messages: [] } }) });
  expect(await drive({ grade: false })).toMatchObject({ outcome: "ok", reward: null, error: null });
});
