import { expect, test } from "vitest";
import { prettyArguments, turnsOf } from "./turns.ts";

test("chat messages show their text, tool calls and results", () => {
  expect(
    turnsOf([
      { role: "user", content: "What is 2 times 3?" },
      {
        role: "assistant",
        content: null,
        tool_calls: [
          { id: "c1", type: "function", function: { name: "multiply", arguments: '{"a":2,"b":3}' } },
        ],
      },
      { role: "tool", tool_call_id: "c1", content: "6" },
      { role: "assistant", content: [{ type: "text", text: "#### 6" }] },
    ]),
  ).toEqual([
    { role: "user", text: "What is 2 times 3?", calls: [] },
    { role: "assistant", text: "", calls: [{ id: "c1", name: "multiply", argumentsText: '{"a":2,"b":3}' }] },
    { role: "tool", tool: "multiply", text: "6", calls: [] },
    { role: "assistant", text: "#### 6", calls: [] },
  ]);
});

test("items of the Responses form are turns of their own", () => {
  expect(
    turnsOf([
      { type: "function_call", callId: "c1", id: "f1", name: "multiply", arguments: '{"a":2,"b":3}' },
      { type: "function_call_result", callId: "c1", output: { type: "text", text: "6" } },
    ]),
  ).toEqual([
    { role: "assistant", text: "", calls: [{ id: "c1", name: "multiply", argumentsText: '{"a":2,"b":3}' }] },
    { role: "tool", tool: "multiply", text: "6", calls: [] },
  ]);
});

test("a message of no known form is shown as it is", () => {
  expect(turnsOf([{ strange: true }, { role: "user", content: { image: 1 } }])).toEqual([
    { role: "unknown", text: '{\n  "strange": true\n}', calls: [] },
    { role: "user", text: '{"image":1}', calls: [] },
  ]);
});

test("long arguments get lines of their own, without losing how the model wrote them", () => {
  const long = "x".repeat(80);
  expect(prettyArguments('{"a":1}')).toBe('{"a":1}');
  expect(prettyArguments(`{"a": 1,"b":"${long}"}`)).toBe(`{\n  "a": 1,\n  "b": "${long}"\n}`);
  const asWritten = [`{"a":1.50,"b":"${long}"}`, `not json ${long}`, `[1,"${long}"]`];
  expect(asWritten.map(prettyArguments)).toEqual(asWritten);
});
