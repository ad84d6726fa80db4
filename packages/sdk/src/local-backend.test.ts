import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test, vi } from "vitest";
import {
  AgentWorkflow,
  type AgentWorkflowContext,
  type AgentWorkflowResult,
  currentRollout,
  Grader,
  type GraderContext,
  LocalBackend,
} from "./index.ts";
import type { RolloutJob } from "./execution.ts";
import { runRollout } from "./testing.ts";

const model = { url: "http://127.0.0.1:9/v1", apiKey: "key-of-the-model" };
const conversation = [
  { role: "user", content: "What is 6 times 7?" },
  { role: "assistant", content: "42" },
];

const source = (name: string) => ({ name, sample: () => ({ messages: conversation }) });

class Talk extends AgentWorkflow {
  run(): AgentWorkflowResult {
    return conversation;
  }
}

class Match extends Grader {
  grade(ctx: GraderContext): void {
    ctx.setReward(ctx.sample.messages.at(-1)?.["content"] === ctx.label ? 1 : 0);
  }
}

function workflow(run: (ctx: AgentWorkflowContext) => unknown) {
  return class Broken extends AgentWorkflow {
    // Plain JavaScript may return anything.
    run = run as (ctx: AgentWorkflowContext) => AgentWorkflowResult;
  };
}

function grader(grade: (ctx: GraderContext) => unknown) {
  return class Strict extends Grader {
    grade = grade as (ctx: GraderContext) => number | void;
  };
}

function outcome(
  parts: { workflow?: ReturnType<typeof workflow>; grader?: ReturnType<typeof grader> },
  options: { agentTimeoutMs?: number; graderTimeoutMs?: number; signal?: AbortSignal; log?: string[] } = {},
) {
  const backend = new LocalBackend({
    workflow: parts.workflow ?? Talk,
    grader: parts.grader ?? Match,
    graceMs: 30,
    log: (text) => options.log?.push(text),
  });
  const { log: _, ...timing } = options;
  return runRollout({ backend, model, prompt: "What is 6 times 7?", label: "42", ...timing });
}

function job(fields: Partial<RolloutJob> = {}): RolloutJob {
  return {
    rolloutId: "r",
    prompt: [],
    label: "42",
    metadata: null,
    chatCompletionsUrl: model.url,
    apiKey: null,
    grade: true,
    agentTimeoutMs: null,
    graderTimeoutMs: null,
    artifactsDir: null,
    ...fields,
  };
}

describe("one execution", () => {
  test("gives one sample and one reward", async () => {
    expect(await outcome({})).toMatchObject({
      status: "success",
      sample: { messages: conversation, reward: 1, removeSample: false },
    });
  });

  test("a grader may return the reward, add metrics, and the last setReward wins", async () => {
    const result = await outcome({
      workflow: workflow(() => ({ messages: conversation, metrics: { calls: 2 }, info: { seed: 1 } })),
      grader: grader((ctx) => {
        ctx.setReward(0);
        ctx.addMetrics({ exact: 1 });
        return 0.5;
      }),
    });
    expect(result).toMatchObject({
      status: "success",
      sample: { reward: 0.5, metrics: { calls: 2, exact: 1 }, extraFields: { info: { seed: 1 } } },
    });
  });

  test("a removed sample needs no reward", async () => {
    const result = await outcome({ grader: grader((ctx) => ctx.removeSample()) });
    expect(result).toMatchObject({ status: "success", sample: { reward: null, removeSample: true } });
  });

  test("is not graded when grading was not asked for", async () => {
    const backend = new LocalBackend({ workflow: Talk });
    const result = await runRollout({ backend, model, prompt: "hi", grade: false });
    expect(result).toMatchObject({ status: "success", sample: { reward: null } });
  });

  test("has its own copy of the config and knows its rollout", async () => {
    const seen: unknown[] = [];
    class Configured extends AgentWorkflow<{ tries: number[] }> {
      run(ctx: AgentWorkflowContext<{ tries: number[] }>) {
        ctx.config.tries.push(1);
        const rollout = currentRollout();
        seen.push([ctx.config.tries.length, rollout.rolloutId === ctx.rolloutId, rollout.chatCompletionsUrl]);
        return conversation;
      }
    }
    const backend = new LocalBackend({ workflow: Configured, workflowConfig: { tries: [] } });
    await Promise.all([1, 2].map(() => runRollout({ backend, model, prompt: "hi", grade: false })));
    expect(seen).toEqual([
      [1, true, model.url],
      [1, true, model.url],
    ]);
  });

  test("outside of a rollout there is no current one", () => {
    expect(() => currentRollout()).toThrow("There is no rollout here.");
  });
});

describe("a failure says which class failed, how, and what to do", () => {
  const cases: [
    name: string,
    parts: Parameters<typeof outcome>[0],
    phase: string,
    category: string,
    text: RegExp,
  ][] = [
    [
      "a workflow that throws",
      {
        workflow: workflow(() => {
          throw new RangeError("boom");
        }),
      },
      "workflow",
      "agent_error",
      /^Broken\.run threw RangeError: boom$/,
    ],
    [
      "a workflow that returns nothing",
      { workflow: workflow(() => undefined) },
      "workflow",
      "validation_error",
      /Broken\.run returned nothing.*Return the message list/,
    ],
    [
      "a workflow that returns two samples",
      { workflow: workflow(() => [{ messages: conversation }, { messages: conversation }]) },
      "workflow",
      "validation_error",
      /Broken\.run returned 2 samples\. One execution is one sample/,
    ],
    [
      "a workflow with two sample sources",
      {
        workflow: workflow(() => {
          currentRollout().setSampleSource(source("first"));
          currentRollout().setSampleSource(source("second"));
        }),
      },
      "workflow",
      "validation_error",
      /two samples: first records one already, and now second wants to/,
    ],
    [
      "a workflow that returns text",
      { workflow: workflow(() => "42") },
      "workflow",
      "validation_error",
      /Broken\.run returned a string/,
    ],
    [
      "a workflow that returns an unknown key",
      { workflow: workflow(() => ({ messages: conversation, reward: 1 })) },
      "workflow",
      "validation_error",
      /the key "reward"/,
    ],
    [
      "a workflow with a metric that is not finite",
      { workflow: workflow(() => ({ messages: conversation, metrics: { loss: Number.NaN } })) },
      "workflow",
      "validation_error",
      /the metric "loss" the value NaN/,
    ],
    [
      "a workflow with more metrics than a run has curves",
      {
        workflow: workflow(() => ({
          messages: conversation,
          metrics: Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`m${n}`, n])),
        })),
      },
      "workflow",
      "validation_error",
      /gave 300 metrics; a rollout may have 256/,
    ],
    [
      "an empty sample",
      { workflow: workflow(() => []) },
      "workflow",
      "validation_error",
      /a sample without messages/,
    ],
    [
      "a grader that throws",
      {
        grader: grader(() => {
          throw new Error("no such key");
        }),
      },
      "grader",
      "agent_error",
      /^Strict\.grade threw no such key$/,
    ],
    [
      "a grader whose metrics are too many together with those of the workflow",
      {
        workflow: workflow(() => ({
          messages: conversation,
          metrics: Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`m${n}`, n])),
        })),
        grader: grader((ctx) => {
          ctx.setReward(1);
          for (let n = 0; n < 57; n++) ctx.addMetrics({ m0: 1, [`g${n}`]: n });
        }),
      },
      "grader",
      "validation_error",
      /Strict gave metrics that nobody can use\. The rollout gave 257 metrics; a rollout may have 256/,
    ],
    [
      "a grader that sets more than anybody could learn from",
      { grader: grader((ctx) => ctx.setReward(1e10)) },
      "grader",
      "validation_error",
      /set the reward to 10000000000\. .*never beyond a billion/,
    ],
    [
      "a grader that sets NaN",
      { grader: grader((ctx) => ctx.setReward(Number.NaN)) },
      "grader",
      "validation_error",
      /Strict set the reward to NaN\. A reward is a finite number/,
    ],
    [
      "a grader that returns infinity",
      { grader: grader(() => Infinity) },
      "grader",
      "validation_error",
      /Strict set the reward to Infinity/,
    ],
    [
      "a grader that forgets the reward",
      { grader: grader(() => undefined) },
      "grader",
      "validation_error",
      /Strict\.grade set no reward\. Call ctx\.setReward/,
    ],
  ];

  test.each(cases)("%s", async (_name, parts, phase, category, text) => {
    const result = await outcome(parts);
    expect(result).toMatchObject({ status: "failure", failure: { phase, category } });
    expect(result.status === "failure" && result.failure.message).toMatch(text);
  });

  test("a failing grader keeps the sample, without a reward", async () => {
    const result = await outcome({ grader: grader(() => undefined) });
    expect(result.sample).toMatchObject({ messages: conversation, reward: null });
  });

  test("grading without a grader is a failure of grading", async () => {
    const backend = new LocalBackend({ workflow: Talk });
    const result = await runRollout({ backend, model, prompt: "hi" });
    expect(result).toMatchObject({ failure: { phase: "grader", category: "validation_error" } });
  });

  test("the key of the endpoint is blacked out, and the log has the stack", async () => {
    const log: string[] = [];
    const leaky = workflow(() => {
      throw new Error(`refused ${model.apiKey}`);
    });
    const result = await outcome({ workflow: leaky }, { log });
    expect(result).toMatchObject({ failure: { message: "Broken.run threw refused [redacted]" } });
    expect(log.join("\n")).toContain("local-backend.test.ts");
    expect(log.join("\n")).not.toContain(model.apiKey);
  });

  test("a config that cannot be copied is refused when the backend is made", () => {
    class Configured extends AgentWorkflow<{ client: () => void }> {
      run = () => conversation;
    }
    const make = () => new LocalBackend({ workflow: Configured, workflowConfig: { client: () => {} } });
    expect(make).toThrow(/workflowConfig cannot be copied/);
  });
});

describe("a deadline", () => {
  test("stops the workflow through its signal", async () => {
    let stopped = false;
    const waits = workflow(async (ctx) => {
      await sleep(60_000, undefined, { signal: ctx.signal }).catch(() => (stopped = true));
    });
    const result = await outcome({ workflow: waits }, { agentTimeoutMs: 20 });
    expect(result).toMatchObject({
      failure: { phase: "workflow", category: "timeout", message: "workflow exceeded its 0.02s deadline" },
    });
    expect(stopped).toBe(true);
  });

  test("gives up on a workflow that does not stop, says so, and drops its late result", async () => {
    const late = Promise.withResolvers<object[]>();
    const log: string[] = [];
    const result = await outcome({ workflow: workflow(() => late.promise) }, { agentTimeoutMs: 10, log });
    late.resolve(conversation);
    expect(result).toMatchObject({ status: "failure", failure: { category: "timeout" } });
    expect(log.join("\n")).toMatch(/Broken\.run did not stop within 0\.03s and may still be running/);
  });

  test("is the grader's own", async () => {
    const slow = grader((ctx) => sleep(60_000, undefined, { signal: ctx.signal }));
    const result = await outcome({ grader: slow }, { graderTimeoutMs: 10 });
    expect(result).toMatchObject({
      failure: { phase: "grader", category: "timeout", message: "grader exceeded its 0.01s deadline" },
    });
  });

  test("of zero is over before the workflow starts", async () => {
    let started = false;
    const result = await outcome({ workflow: workflow(() => (started = true)) }, { agentTimeoutMs: 0 });
    expect(result).toMatchObject({ failure: { category: "timeout" } });
    expect(started).toBe(false);
  });

  test("a result that comes after it is a timeout even when the event loop was blocked", async () => {
    const blocks = workflow(() => {
      const end = performance.now() + 30;
      while (performance.now() < end);
      return conversation;
    });
    expect(await outcome({ workflow: blocks }, { agentTimeoutMs: 10 })).toMatchObject({
      failure: { category: "timeout" },
    });
  });

  test("of the workflow's own keeps its message", async () => {
    const impatient = workflow(async () => {
      await sleep(60_000, undefined, { signal: AbortSignal.timeout(5) }).catch((error: Error) => {
        throw error.cause;
      });
    });
    expect(await outcome({ workflow: impatient })).toMatchObject({
      failure: { category: "timeout", message: expect.stringMatching(/^Broken\.run threw TimeoutError/) },
    });
  });
});

describe("slots", () => {
  test("bound how many run, through grading, and cancelled ones leave the queue", async () => {
    const gates: PromiseWithResolvers<object[]>[] = [];
    const gated = workflow(() => {
      const gate = Promise.withResolvers<object[]>();
      gates.push(gate);
      return gate.promise;
    });
    const backend = new LocalBackend({ workflow: gated, grader: Match, concurrency: 1, maxQueued: 1 });
    const cancel = new AbortController();
    const first = backend.execute(job(), { signal: new AbortController().signal });
    expect(backend.hasCapacity()).toBe(true);
    const second = backend.execute(job(), { signal: cancel.signal });
    expect(backend.health()).toMatchObject({ running: 1, queued: 1, maxConcurrent: 1 });
    expect(backend.hasCapacity()).toBe(false);

    cancel.abort("requested");
    expect(await second).toEqual({ status: "cancelled", reason: "requested", sample: null });
    expect(gates).toHaveLength(1);
    const third = backend.execute(job(), { signal: new AbortController().signal });
    gates[0]?.resolve(conversation);
    expect((await first).status).toBe("success");
    await vi.waitFor(() => expect(gates).toHaveLength(2));
    gates[1]?.resolve(conversation);
    expect((await third).status).toBe("success");
    expect(backend.health()).toMatchObject({ running: 0, queued: 0 });
  });

  test("the agent's deadline counts the time in the queue", async () => {
    const blocker = Promise.withResolvers<object[]>();
    const backend = new LocalBackend({
      workflow: workflow(() => blocker.promise),
      grader: Match,
      concurrency: 1,
    });
    const first = backend.execute(job(), { signal: new AbortController().signal });
    const second = await backend.execute(job({ agentTimeoutMs: 20 }), {
      signal: new AbortController().signal,
    });
    expect(second).toMatchObject({
      failure: { category: "timeout", message: expect.stringMatching(/0\.02s deadline in the queue/) },
    });
    blocker.resolve(conversation);
    await first;
  });

  test("cancelling a running rollout aborts its signal", async () => {
    const cancel = new AbortController();
    const waits = workflow(async (ctx) => {
      cancel.abort("requested");
      await sleep(60_000, undefined, { signal: ctx.signal });
    });
    expect(await outcome({ workflow: waits }, { signal: cancel.signal })).toEqual({
      status: "cancelled",
      reason: "requested",
      sample: null,
    });
  });
});
