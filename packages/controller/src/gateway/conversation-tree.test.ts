import type { ChatMessage, ChatTool } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { loadTestCodec } from "../../test/chat-codec.ts";
import { createConversationTree } from "./conversation-tree.ts";
import { messageFingerprint } from "./message-fingerprint.ts";

const codec = await loadTestCodec();
const [stop = 0] = codec.stopTokens;

const system: ChatMessage = { role: "system", content: "Be brief." };
const user = (content: string): ChatMessage => ({ role: "user", content });
const tools: ChatTool[] = [
  { type: "function", function: { name: "multiply", parameters: { type: "object" } } },
];

function called(args: string, id = "call_1"): ChatMessage {
  return {
    role: "assistant",
    content: null,
    tool_calls: [{ id, type: "function", function: { name: "multiply", arguments: args } }],
  };
}

function answerIn(
  tree: ReturnType<typeof createConversationTree>,
  messages: ChatMessage[],
  answer: ChatMessage,
  text: string,
) {
  const start = tree.locate(messages, tools);
  const sampled = [...codec.encode(text), stop];
  const logprobs = sampled.map((_, index) => -(index + 1) / 10);
  tree.add(start, { messages, tools, answer, sampled, logprobs, conversation: "c" });
  return { start, sampled, logprobs };
}

const CALL = '<tool_call>{"name":"multiply","arguments":{"a":2,"b":3}}</tool_call>';

test("a call that extends the conversation keeps the sampled ids and appends the new messages alone", () => {
  const tree = createConversationTree(codec);
  const first = answerIn(tree, [system, user("2 times 3?")], called('{"a":2,"b":3}'), CALL);
  const toolResult: ChatMessage = { role: "tool", tool_call_id: "call_1", content: "6" };
  // As a client rebuilds it: other key order, other spacing, an empty text instead of null.
  const rebuilt = { ...called('{ "b": 3, "a": 2 }'), content: "" } as ChatMessage;
  const second = answerIn(
    tree,
    [system, user("2 times 3?"), rebuilt, toolResult],
    { role: "assistant", content: "It is 6." },
    "It is 6.",
  );

  expect(second.start.broke).toBe(false);
  expect(second.start.prompt.slice(0, first.start.prompt.length + first.sampled.length)).toEqual([
    ...first.start.prompt,
    ...first.sampled,
  ]);
  expect(codec.decode(second.start.appended)).toBe(
    "\n<|im_start|>tool\n6<|im_end|>\n<|im_start|>assistant\n",
  );

  const [sequence, ...others] = tree.sequences();
  expect(others).toEqual([]);
  expect(sequence?.tokens).toEqual([...second.start.prompt, ...second.sampled]);
  const ones = (sequence?.mask ?? []).flatMap((bit, index) => (bit === 1 ? [index] : []));
  const firstAt = first.start.prompt.length;
  const secondAt = second.start.prompt.length;
  expect(ones).toEqual([
    ...first.sampled.map((_, index) => firstAt + index),
    ...second.sampled.map((_, index) => secondAt + index),
  ]);
  expect(ones.map((index) => sequence?.logprobs[index])).toEqual([...first.logprobs, ...second.logprobs]);
  expect(sequence?.logprobs.filter((_, index) => !ones.includes(index)).every((value) => value === 0)).toBe(
    true,
  );
});

test("an answer that was cut gets its end token from the continuation, with mask 0", () => {
  const tree = createConversationTree(codec);
  const start = tree.locate([user("Hi")], []);
  const sampled = codec.encode("Hello th");
  tree.add(start, {
    messages: [user("Hi")],
    tools: [],
    answer: { role: "assistant", content: "Hello th" },
    sampled,
    logprobs: sampled.map(() => -1),
    conversation: "c",
  });
  const next = tree.locate([user("Hi"), { role: "assistant", content: "Hello th" }, user("Go on")], []);
  expect(codec.decode(next.appended)).toBe(
    "<|im_end|>\n<|im_start|>user\nGo on<|im_end|>\n<|im_start|>assistant\n",
  );
});

test("a client that changes an answer opens a branch, and the break is marked", () => {
  const tree = createConversationTree(codec);
  const first = answerIn(tree, [user("2 times 3?")], called('{"a":2,"b":3}'), CALL);
  const changed = [
    user("2 times 3?"),
    called('{"a":2,"b":4}'),
    { role: "tool", tool_call_id: "x", content: "8" } as const,
  ];
  const second = answerIn(tree, changed, { role: "assistant", content: "8" }, "8");
  expect(second.start.broke).toBe(true);
  expect(second.start.prompt).toEqual(codec.renderPrompt(changed, tools));
  const sequences = tree.sequences();
  expect(sequences.map(({ mask }) => mask.filter((bit) => bit === 1).length)).toEqual([
    first.sampled.length,
    second.sampled.length,
  ]);
});

test("a call with other tools breaks, since the system prompt changes", () => {
  const tree = createConversationTree(codec);
  answerIn(tree, [user("2 times 3?")], called('{"a":2,"b":3}'), CALL);
  const more = tree.locate(
    [user("2 times 3?"), called('{"a":2,"b":3}'), { role: "tool", tool_call_id: "call_1", content: "6" }],
    [],
  );
  expect(more.broke).toBe(true);
});

test("a second conversation of the rollout is a tree of its own, not a break", () => {
  const tree = createConversationTree(codec);
  answerIn(tree, [user("2 times 3?")], called('{"a":2,"b":3}'), CALL);
  expect(
    answerIn(tree, [user("Plan first.")], { role: "assistant", content: "Yes" }, "Yes").start.broke,
  ).toBe(false);
  expect(tree.sequences().length).toBe(2);
});

test("a repeated call forks, and the calls that both branches share are trained once", () => {
  const tree = createConversationTree(codec);
  const first = answerIn(tree, [user("2 times 3?")], called('{"a":2,"b":3}'), CALL);
  const history: ChatMessage[] = [
    user("2 times 3?"),
    called('{"a":2,"b":3}'),
    { role: "tool", tool_call_id: "call_1", content: "6" },
  ];
  const second = answerIn(tree, history, { role: "assistant", content: "6" }, "6");
  const third = answerIn(tree, history, { role: "assistant", content: "six" }, "six");
  expect([second.start.broke, third.start.broke]).toEqual([false, false]);
  expect(tree.sequences().map(({ mask }) => mask.filter((bit) => bit === 1).length)).toEqual([
    first.sampled.length + second.sampled.length,
    third.sampled.length,
  ]);
});

test("messages that say the same have the same fingerprint", () => {
  const text: ChatMessage = { role: "user", content: [{ type: "text", text: "Hi" }] };
  expect(messageFingerprint(text)).toBe(messageFingerprint(user("Hi")));
  expect(messageFingerprint(called("{}", "a"))).toBe(messageFingerprint(called("{ }", "b")));
  expect(messageFingerprint({ role: "assistant", content: "Hi", tool_calls: [] })).toBe(
    messageFingerprint({ role: "assistant", content: "Hi\n", reasoning_content: "thought" }),
  );
  expect(messageFingerprint(user("Hi"))).not.toBe(messageFingerprint(user("Hi ")));
  expect(messageFingerprint(called('{"a":1}'))).not.toBe(messageFingerprint(called('{"a":"1"}')));
  expect(messageFingerprint(called('{"a":1'))).not.toBe(messageFingerprint(called('{"a":1}')));
});
