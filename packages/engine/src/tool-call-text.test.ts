import * as fc from "fast-check";
import { expect, test } from "vitest";
import { parseToolCalls } from "./tool-call-text.ts";

test("any text is parsed, and text without a tool call is its own content", () => {
  const pieces = fc.constantFrom(
    "<tool_call>",
    "</tool_call>",
    '{"name":"f","arguments":{}}',
    "{",
    "}",
    '"',
    "x",
    "\n",
  );
  fc.assert(
    fc.property(fc.array(fc.oneof(pieces, fc.string())), (parts) => {
      const text = parts.join("");
      const answer = parseToolCalls(text);
      if (!text.includes("<tool_call>")) {
        expect(answer).toEqual({ content: text, toolCalls: [], malformedToolCall: false });
      }
      if (answer.toolCalls.length === 0) expect(answer.content).toBe(text);
    }),
  );
});

test("any arguments come back as they were, however they are spaced", () => {
  fc.assert(
    fc.property(
      fc.dictionary(fc.string(), fc.jsonValue()),
      fc.string({ minLength: 1 }),
      fc.dictionary(fc.string(), fc.jsonValue()),
      fc.constantFrom(0, 2),
      (parameters, name, others, indent) => {
        const json = JSON.stringify({ ...others, name, arguments: parameters, ...others }, null, indent);
        const valid: unknown = JSON.parse(json);
        const whole = { ...others, name, arguments: parameters, ...others };
        fc.pre(typeof whole.name === "string" && whole.name === name && whole.arguments === parameters);
        fc.pre(!json.includes("</tool_call>"));
        const { toolCalls } = parseToolCalls(`<tool_call>${json}</tool_call>`);
        expect(toolCalls).toHaveLength(1);
        expect({ ...(valid as object), arguments: JSON.parse(toolCalls[0]?.arguments ?? "") }).toEqual(valid);
      },
    ),
  );
});
