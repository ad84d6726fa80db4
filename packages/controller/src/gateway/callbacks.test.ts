import { afterEach, expect, test } from "vitest";
import { loadTestCodec } from "../../test/chat-codec.ts";
import { samplerOf } from "../../test/scripted-sampler.ts";
import { systemClock } from "../io.ts";
import { openGateway } from "./gateway.ts";
import type { Gateway } from "./gateway.ts";

const codec = await loadTestCodec();
const gateways: Gateway[] = [];

afterEach(async () => {
  await Promise.all(gateways.splice(0).map((gateway) => gateway[Symbol.asyncDispose]()));
});

async function open() {
  const gateway = await openGateway({
    policy: { type: "local", name: "tiny", sampler: samplerOf(codec, () => ({ answer: "" })), codec },
    clock: systemClock,
  });
  gateways.push(gateway);
  const rollout = gateway.openRollout({
    rolloutId: "run 1",
    seed: 0,
    sampling: { temperature: 1, topP: 1, maxTokens: 5, wins: "run" },
    signal: new AbortController().signal,
  });
  const post = async (url: string, body: unknown, key = rollout.callbacks.apiKey) => {
    const response = await fetch(url, {
      method: "POST",
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify(body),
    });
    return { status: response.status, body: await response.json() };
  };
  const ended = (graded: boolean) => rollout.callbacks.ended({ graded, signal: AbortSignal.timeout(5000) });
  const { completionUrl, graderUrl } = rollout.callbacks;
  return { rollout, post, ended, completionUrl, graderUrl };
}

const sample = { messages: [], reward: 0.5 };

test("the grader's callback ends a graded rollout, with or without the completion's before it", async () => {
  const { post, ended, completionUrl, graderUrl } = await open();
  expect(await post(completionUrl, { status: "success", rollout_id: "run 1" })).toEqual({
    status: 200,
    body: { ok: true },
  });
  await post(graderUrl, { status: "success", rollout_id: "run 1", sample });
  expect(await ended(true)).toMatchObject({ status: "success", sample: { reward: 0.5 }, err_phase: null });

  const other = await open();
  await other.post(other.graderUrl, { status: "success", sample });
  expect(await other.ended(true)).toMatchObject({ status: "success", sample: { reward: 0.5 } });
});

test("the completion's callback ends a rollout that failed, or is not graded", async () => {
  const { post, ended, completionUrl } = await open();
  await post(completionUrl, { status: "failure", err_message: "boom", err_category: "timeout" });
  expect(await ended(true)).toMatchObject({
    status: "failure",
    err_message: "boom",
    err_category: "timeout",
  });
  const other = await open();
  await other.post(other.completionUrl, { status: "success" });
  expect(await other.ended(false)).toMatchObject({ status: "success", sample: null });
});

test("the first report counts; repeats, contradictions and late ones are acknowledged", async () => {
  const { rollout, post, ended, graderUrl } = await open();
  await post(graderUrl, { status: "success", sample });
  expect((await post(graderUrl, { status: "failure" })).status).toBe(200);
  expect(await ended(true)).toMatchObject({ status: "success" });
  rollout.close();
  expect(await post(graderUrl, { status: "success", sample })).toEqual({ status: 200, body: { ok: true } });
});

test.each([
  ["a reward that is a text", { messages: [], reward: "one" }, "grader", "sample.reward is"],
  ["no messages", { messages: "none", reward: 1 }, "workflow", "sample.messages is"],
])(
  "a success with %s is a failure at once, and later reports change nothing",
  async (_, bad, phase, text) => {
    const { post, ended, graderUrl } = await open();
    expect((await post(graderUrl, { status: "success", rollout_id: "run 1", sample: bad })).status).toBe(422);
    expect((await post(graderUrl, { status: "success", sample })).status).toBe(200);
    expect(await ended(true)).toMatchObject({
      status: "failure",
      err_category: "validation_error",
      err_phase: phase,
      err_message: expect.stringContaining(text),
    });
  },
);

test.each([undefined, "done", { reward: 1 }])(
  "the report %j is the rollout server's failure",
  async (body) => {
    const { post, ended, graderUrl } = await open();
    expect((await post(graderUrl, body)).status).toBe(422);
    await expect(ended(true)).rejects.toMatchObject({
      kind: "refused",
      message: expect.stringContaining("cannot be read"),
    });
  },
);

test.each([
  ["completion", "failure"],
  ["completion", "cancelled"],
  ["grader", "failure"],
  ["grader", "cancelled"],
])("a %s report of a %s that cannot be read ends the rollout at once, too", async (kind, status) => {
  const { post, ended, completionUrl, graderUrl } = await open();
  const body = { status, err_message: { deep: "inside" } };
  expect((await post(kind === "grader" ? graderUrl : completionUrl, body)).status).toBe(422);
  await expect(ended(true)).rejects.toMatchObject({
    kind: "refused",
    message: expect.stringContaining("deep"),
  });
});

test("a report that is not final, or of another rollout, changes nothing", async () => {
  const { post, ended, completionUrl, graderUrl } = await open();
  await post(completionUrl, { status: "running" });
  await post(completionUrl, { status: "success", err_message: {} });
  await post(graderUrl, { status: "pending", sample: "none yet" });
  await post(graderUrl, { status: "success", rollout_id: "run 2", sample: { messages: [], reward: "one" } });
  await post(graderUrl, { status: "success", sample });
  expect(await ended(true)).toMatchObject({ status: "success" });
});

test("a callback is refused for another rollout, without the key, or in a state that is not final", async () => {
  const { rollout, post, completionUrl, graderUrl } = await open();
  expect((await post(completionUrl.replace("run%201", "run2"), { status: "success" })).status).toBe(404);
  expect((await post(completionUrl, { status: "success", rollout_id: "run 2" })).status).toBe(422);
  expect((await post(completionUrl, { status: "running" })).status).toBe(422);
  expect((await post(graderUrl, { status: "pending" })).status).toBe(422);
  expect((await post(graderUrl, { status: "success" }, rollout.apiKey)).status).toBe(401);
  rollout.close();
  expect((await post(graderUrl, { status: "success" }, "wrong")).status).toBe(401);
});

test("waiting for callbacks ends with its signal", async () => {
  const { rollout } = await open();
  const stop = new AbortController();
  const waiting = rollout.callbacks.ended({ graded: true, signal: stop.signal });
  stop.abort(new Error("the deadline"));
  await expect(waiting).rejects.toThrow("the deadline");
});
