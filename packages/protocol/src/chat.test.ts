import { expect, test } from "vitest";
import { ChatRequest, ChatResponse, chatText } from "./index.ts";

test("a chat request keeps the fields that nobody knows", () => {
  const body = {
    model: "m",
    messages: [
      { role: "system", content: "s" },
      {
        role: "user",
        content: [
          { type: "text", text: "a" },
          { type: "image_url", image_url: { url: "u" } },
        ],
      },
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{" }, provider: 1 }],
      },
      { role: "tool", tool_call_id: "c", content: "1" },
    ],
    reasoning_effort: "low",
    stream_options: { include_usage: true },
  };
  expect(ChatRequest.parse(body)).toEqual(body);
});

test("a chat request is refused with the place of the fault", () => {
  const parsed = ChatRequest.safeParse({
    model: "m",
    messages: [{ role: "robot", content: "" }],
    temperature: 9,
  });
  expect(parsed.error?.issues.map((issue) => issue.path.join("."))).toEqual([
    "messages.0.role",
    "temperature",
  ]);
});

test("a reply may have no usage and null content", () => {
  const reply = {
    id: "x",
    object: "chat.completion",
    created: 1,
    model: "m",
    choices: [{ index: 0, message: { role: "assistant", content: null }, finish_reason: "length" }],
  };
  expect(ChatResponse.parse(reply)).toEqual(reply);
});

test("the text of a message is its string or its text parts", () => {
  expect(chatText("a")).toBe("a");
  expect(chatText(null)).toBe("");
  expect(chatText([{ type: "text", text: "a" }, { type: "image_url" }, { type: "text", text: "b" }])).toBe(
    "a\nb",
  );
});
