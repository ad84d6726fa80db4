import { describe, expect, test } from "vitest";
import { atifFromMessages, AtifTrajectory, formatAtif, toPlainJson, type TrajectorySource } from "./index.ts";

const agent = { name: "osmosis-rollout-sdk", version: "0.1.0" };

function trajectory(fields: Partial<TrajectorySource>): AtifTrajectory {
  return AtifTrajectory.parse(atifFromMessages({ rolloutId: "r-1", agent, messages: [], ...fields }));
}

const toolCall = { id: "c1", type: "function", function: { name: "multiply", arguments: '{"a":6}' } };

describe("a trajectory document", () => {
  test("folds tool messages into the agent step before them", () => {
    const document = trajectory({
      messages: [
        { role: "developer", content: "Use tools." },
        {
          role: "user",
          content: [
            { type: "text", text: "6" },
            { type: "text", text: "7" },
          ],
        },
        { role: "assistant", content: null, tool_calls: [toolCall], reasoning_content: "hm" },
        { role: "tool", tool_call_id: "c1", content: "42" },
        { role: "tool", tool_call_id: "other", content: "?" },
        { role: "assistant", content: "42" },
      ],
      label: "42",
      reward: 1,
      requestMetadata: { row: 3 },
    });
    expect(document).toEqual({
      schema_version: "ATIF-v1.7",
      session_id: "r-1",
      trajectory_id: "r-1",
      agent,
      steps: [
        { step_id: 1, source: "system", message: "Use tools." },
        { step_id: 2, source: "user", message: "6\n7" },
        {
          step_id: 3,
          source: "agent",
          message: "",
          reasoning_content: "hm",
          tool_calls: [{ tool_call_id: "c1", function_name: "multiply", arguments: { a: 6 } }],
          observation: {
            results: [
              { source_call_id: "c1", content: "42" },
              { content: "?", extra: { tool_call_id: "other" } },
            ],
          },
        },
        { step_id: 4, source: "agent", message: "42" },
      ],
      final_metrics: { total_steps: 4 },
      extra: { osmosis: { rollout_id: "r-1", label: "42", reward: 1, request_metadata: { row: 3 } } },
    });
  });

  test("keeps what it does not understand", () => {
    const odd = { id: "", function: { name: "f", arguments: "not json" } };
    const document = trajectory({
      messages: [
        { role: "tool", tool_call_id: "c0", content: "early" },
        { role: "narrator", content: { a: 1 }, created_at: 0 },
        { role: "assistant", content: "", tool_calls: [odd] },
      ],
    });
    expect(document.steps).toEqual([
      {
        step_id: 1,
        source: "system",
        message: "",
        observation: { results: [{ content: "early", extra: { tool_call_id: "c0" } }] },
      },
      {
        step_id: 2,
        source: "user",
        message: '{"a":1}',
        timestamp: "1970-01-01T00:00:00.000Z",
        extra: { original_role: "narrator" },
      },
      {
        step_id: 3,
        source: "agent",
        message: "",
        tool_calls: [{ tool_call_id: "call_0", function_name: "f", arguments: { _raw: "not json" } }],
      },
    ]);
  });

  test("counts tokens from the report when its calls match the agent's steps", () => {
    const messages = [
      { role: "assistant", content: "a", usage: { input_tokens: 1, output_tokens: 1 } },
      { role: "assistant", content: "b" },
    ];
    const calls = [
      { prompt_tokens: 10, completion_tokens: 2, cached_tokens: 4 },
      { prompt_tokens: 20, completion_tokens: 3, model_name: "m" },
    ];
    const report = { model_name: "tiny", samples: { any: { llm_call_metrics: calls } } };
    const document = trajectory({ messages, report });
    expect(document.agent.model_name).toBe("tiny");
    expect(document.steps).toMatchObject([
      { metrics: { prompt_tokens: 10, completion_tokens: 2, cached_tokens: 4 } },
      { metrics: { prompt_tokens: 20, completion_tokens: 3 }, model_name: "m" },
    ]);
    expect(document.final_metrics).toEqual({
      total_prompt_tokens: 30,
      total_completion_tokens: 5,
      total_cached_tokens: 4,
      total_steps: 2,
    });

    const unmatched = trajectory({ messages: messages.slice(0, 1), report });
    expect(unmatched.extra).toMatchObject({ osmosis: { unmatched_llm_call_metrics: calls } });
    expect(unmatched.final_metrics).toMatchObject({ total_prompt_tokens: 30 });
    expect(trajectory({ messages }).final_metrics).toMatchObject({ total_prompt_tokens: 1 });
  });

  test("is written with two spaces, numbers on one line and ASCII only", () => {
    const document = trajectory({
      messages: [{ role: "assistant", content: "é😀" }],
      report: { samples: { s: { llm_call_metrics: [{ completion_token_ids: [1, 2, 3] }] } } },
    });
    const text = formatAtif(document);
    expect(text).toContain('      "message": "\\u00e9\\ud83d\\ude00"');
    expect(text).toContain('"completion_token_ids": [1, 2, 3]');
    expect(JSON.parse(text)).toEqual(document);
  });
});

test("one odd leaf does not cost the whole value", () => {
  const cycle: Record<string, unknown> = {
    n: Number.NaN,
    big: 12n,
    f: () => 1,
    at: new Date(0),
    list: [undefined, Infinity],
  };
  cycle["self"] = cycle;
  expect(toPlainJson(cycle)).toEqual({
    n: null,
    big: "12",
    at: "1970-01-01T00:00:00.000Z",
    list: [null, null],
    self: null,
  });
});
