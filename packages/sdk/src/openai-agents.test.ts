import { Agent, Runner, tool } from "@openai/agents";
import { describe, expect, test } from "vitest";
import * as z from "zod";
import {
  AgentWorkflow,
  type AgentWorkflowContext,
  Grader,
  type GraderContext,
  lastAssistantText,
  LocalBackend,
} from "./index.ts";
import { osmosisModel, runOsmosisAgent, type RunOsmosisAgentOptions } from "./openai-agents.ts";
import { runRollout, type ScriptedCall, scriptedModel } from "./testing.ts";

const multiply = tool({
  name: "multiply",
  description: "Multiplies two numbers.",
  parameters: z.object({ a: z.number(), b: z.number() }),
  execute: ({ a, b }) => String(a * b),
});

function calculator(fields: Partial<ConstructorParameters<typeof Agent>[0]> = {}) {
  return new Agent({ name: "calculator", instructions: "Use the tool.", tools: [multiply], ...fields });
}

class Calculate extends AgentWorkflow {
  async run(ctx: AgentWorkflowContext) {
    await runOsmosisAgent(calculator(), ctx.prompt);
  }
}

class Exact extends Grader {
  grade(ctx: GraderContext) {
    ctx.setReward(lastAssistantText(ctx.sample.messages) === ctx.label ? 1 : 0);
  }
}

const twoCalls: ScriptedCall[] = [{ call: { name: "multiply", arguments: { a: 6, b: 7 } } }, { say: "42" }];

async function play(
  script: readonly ScriptedCall[],
  run: (ctx: AgentWorkflowContext) => Promise<unknown>,
  options: { agentTimeoutMs?: number } = {},
) {
  await using model = await scriptedModel(script);
  class Played extends AgentWorkflow {
    async run(ctx: AgentWorkflowContext) {
      await run(ctx);
    }
  }
  const backend = new LocalBackend({ workflow: Played, grader: Exact, log: () => {} });
  const result = await runRollout({ backend, model, prompt: "What is 6 times 7?", label: "42", ...options });
  return { result, requests: model.requests, model };
}

describe("an agent of the OpenAI Agents SDK", () => {
  test("runs on the rollout's endpoint and its conversation is the sample", async () => {
    await using model = await scriptedModel(twoCalls);
    const backend = new LocalBackend({ workflow: Calculate, grader: Exact });
    const result = await runRollout({ backend, model, prompt: "What is 6 times 7?", label: "42" });
    model.assertDone();
    expect(result).toMatchObject({
      status: "success",
      sample: {
        reward: 1,
        messages: [
          { role: "system", content: "Use the tool." },
          { role: "user", content: "What is 6 times 7?" },
          { role: "assistant", tool_calls: [{ id: "call_1_1", function: { name: "multiply" } }] },
          { role: "tool", tool_call_id: "call_1_1", content: "42" },
          { role: "assistant", content: "42" },
        ],
      },
    });
    expect(model.requests[0]).toMatchObject({ model: "osmosis-rollout", stream: false });
    expect(model.requests[0]?.tools?.[0]?.function.name).toBe("multiply");
  });

  test("each call extends the history of the one before, word by word", async () => {
    const { requests, result } = await play(
      [{ say: "First:", call: { name: "multiply", arguments: '{"a": 6,  "b": 7}' } }, ...twoCalls],
      (ctx) => runOsmosisAgent(calculator(), ctx.prompt),
    );
    expect(result.status).toBe("success");
    for (const [i, request] of requests.entries()) {
      const before = requests[i - 1]?.messages ?? [];
      expect(request.messages.slice(0, before.length)).toEqual(before);
    }
    expect(requests[2]?.messages[2]).toEqual({
      role: "assistant",
      content: "First:",
      tool_calls: [
        { id: "call_1_1", type: "function", function: { name: "multiply", arguments: '{"a": 6,  "b": 7}' } },
      ],
    });
  });

  test("streams when it is asked to, and when the endpoint knows nothing else", async () => {
    const streamed = await play(twoCalls, async (ctx) => {
      const agent = calculator({ model: osmosisModel() });
      const stream = await new Runner({ tracingDisabled: true }).run(
        agent,
        String(ctx.prompt[0]?.["content"]),
        {
          stream: true,
        },
      );
      await stream.completed;
    });
    const streamOnly = await play(twoCalls, (ctx) =>
      runOsmosisAgent(calculator(), ctx.prompt, { streamOnly: true }),
    );
    for (const { result, requests } of [streamed, streamOnly]) {
      expect(result).toMatchObject({ status: "success", sample: { reward: 1 } });
      expect(result.sample?.messages).toHaveLength(5);
      expect(requests.every((request) => request.stream === true)).toBe(true);
    }
  });

  test("sends the parameters that were asked for and no others", async () => {
    const { requests } = await play([{ say: "42" }], (ctx) =>
      runOsmosisAgent(calculator({ modelSettings: { maxTokens: 7 } }), ctx.prompt, {
        params: { temperature: 0.5, stop: ["\n"], max_tokens: 100 },
      }),
    );
    const { messages: _messages, tools: _tools, ...rest } = requests[0] ?? {};
    expect(rest).toEqual({
      model: "osmosis-rollout",
      temperature: 0.5,
      stop: ["\n"],
      max_tokens: 7,
      stream: false,
    });
  });

  test("a policy that calls a tool that does not exist, or never ends, is graded and not failed", async () => {
    const unknownTool = await play([{ call: { name: "divide", arguments: {} } }, { say: "41" }], (ctx) =>
      runOsmosisAgent(calculator(), ctx.prompt),
    );
    expect(unknownTool.result).toMatchObject({ status: "success", sample: { reward: 0 } });

    const badArguments = await play(
      [{ call: { name: "multiply", arguments: "six" } }, { say: "42" }],
      (ctx) => runOsmosisAgent(calculator(), ctx.prompt),
    );
    expect(badArguments.result).toMatchObject({ status: "success", sample: { reward: 1 } });

    const ended: unknown[] = [];
    const cutShort = await play([{ finishReason: "length" }], async (ctx) => {
      ended.push(await runOsmosisAgent(calculator(), ctx.prompt));
    });
    expect(cutShort.result).toMatchObject({ status: "success", sample: { reward: 0 } });

    const endless = await play([twoCalls[0] ?? {}, twoCalls[0] ?? {}], async (ctx) => {
      ended.push(await runOsmosisAgent(calculator(), ctx.prompt, { maxTurns: 2 }));
    });
    expect(ended).toEqual([
      { finalOutput: undefined, ended: "model_error" },
      { finalOutput: undefined, ended: "max_turns" },
    ]);
    expect(endless.result).toMatchObject({ status: "success", sample: { reward: 0 } });
  });

  test("a conversation that has outgrown the endpoint ends there, and is graded", async () => {
    const tooLong = { fail: { status: 400, message: "too long", code: "context_length_exceeded" } };
    for (const options of [{}, { streamOnly: true }]) {
      const ended: unknown[] = [];
      const run = async (ctx: AgentWorkflowContext) => {
        ended.push(await runOsmosisAgent(calculator(), ctx.prompt, options));
      };
      const later = await play([twoCalls[0] ?? {}, tooLong], run);
      expect(later.result).toMatchObject({ status: "success", sample: { reward: 0 } });
      expect(later.result.sample?.messages.map((message) => message["role"])).toEqual([
        "system",
        "user",
        "assistant",
        "tool",
      ]);
      expect(ended).toEqual([{ finalOutput: undefined, ended: "context_length" }]);
      // Of a first prompt that does not fit nothing can be graded.
      const atOnce = await play([tooLong], run);
      expect(atOnce.result).toMatchObject({
        status: "failure",
        failure: { category: "http_error", message: expect.stringContaining("too long") },
      });
    }
    const other = await play([{ fail: { status: 400, code: "invalid_value" } }], (ctx) =>
      runOsmosisAgent(calculator(), ctx.prompt),
    );
    expect(other.result).toMatchObject({ status: "failure", failure: { category: "http_error" } });
  });

  test("tool results that end the run are part of the sample", async () => {
    const { result } = await play(twoCalls.slice(0, 1), (ctx) =>
      runOsmosisAgent(calculator({ toolUseBehavior: "stop_on_first_tool" }), ctx.prompt),
    );
    expect(result.sample?.messages.at(-1)).toEqual({ role: "tool", tool_call_id: "call_1_1", content: "42" });
  });

  test("an endpoint that fails is an http_error, not the agent's fault", async () => {
    const { result } = await play([{ fail: { status: 502, message: "the engine died" } }], (ctx) =>
      runOsmosisAgent(calculator(), ctx.prompt),
    );
    expect(result).toMatchObject({
      status: "failure",
      failure: { phase: "workflow", category: "http_error" },
    });
    expect(result.status === "failure" && result.failure.message).toMatch(
      /ChatEndpointError: .*\/chat\/completions answered 502: the engine died/,
    );
  });

  test("a refused call for lack of capacity is repeated", async () => {
    const { result, requests } = await play([{ fail: { status: 429 } }, { say: "42" }], (ctx) =>
      runOsmosisAgent(calculator(), ctx.prompt),
    );
    expect(result).toMatchObject({ status: "success", sample: { reward: 1 } });
    expect(requests).toHaveLength(2);
  });

  test("a deadline aborts the model call under way", async () => {
    const { result } = await play([{ hang: true }], (ctx) => runOsmosisAgent(calculator(), ctx.prompt), {
      agentTimeoutMs: 300,
    });
    expect(result).toMatchObject({
      failure: { category: "timeout", message: "workflow exceeded its 0.3s deadline" },
    });
  });

  test("a conversation that broke off is kept, without a reward", async () => {
    const { result } = await play([twoCalls[0] ?? {}, { fail: { status: 500 } }], (ctx) =>
      runOsmosisAgent(calculator(), ctx.prompt),
    );
    expect(result).toMatchObject({ status: "failure", sample: { reward: null } });
    expect(result.sample?.messages.map((message) => message["role"])).toEqual([
      "system",
      "user",
      "assistant",
    ]);
  });

  test("a second model in one execution is refused", async () => {
    const { result } = await play([], async () => {
      osmosisModel();
      osmosisModel();
    });
    expect(result).toMatchObject({
      status: "failure",
      failure: { message: expect.stringContaining("use one model object for all agents") },
    });
  });

  test("a model cannot be made outside of a rollout", () => {
    expect(() => osmosisModel()).toThrow("There is no rollout here.");
  });

  test("a prompt with an earlier conversation is passed on as it is", async () => {
    const prompt = [
      { role: "system", content: "Be brief." },
      { role: "user", content: [{ type: "text", text: "Hi" }] },
      {
        role: "assistant",
        content: "One moment.",
        tool_calls: [{ id: "c", type: "function", function: { name: "multiply", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "c", content: "0" },
      { role: "user", content: "And?" },
    ];
    const options: RunOsmosisAgentOptions = { maxTurns: 1 };
    const { requests } = await play([{ say: "42" }], () =>
      runOsmosisAgent(new Agent({ name: "plain" }), prompt, options),
    );
    expect(requests[0]?.messages).toEqual(prompt);
  });
});
