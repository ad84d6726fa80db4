import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ChatMessage, ChatTool } from "@osmosis/protocol";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { loadChatCodec } from "./chat-codec.ts";
import type { ChatCodec } from "./chat-codec.ts";

const FIXTURE = fileURLToPath(new URL("../fixtures/chatml", import.meta.url));

/** What the Python libraries make of the same inputs; see fixtures/make_chat_fixtures.py. */
const Cases = z.object({
  texts: z.array(z.object({ text: z.string(), ids: z.array(z.int()) })),
  conversations: z.array(
    z.object({
      name: z.string(),
      messages: z.array(ChatMessage),
      tools: z.array(ChatTool),
      text: z.string(),
      ids: z.array(z.int()),
    }),
  ),
});
const cases = Cases.parse(JSON.parse(await readFile(join(FIXTURE, "cases.json"), "utf8")));

let codec: ChatCodec;

beforeAll(async () => {
  codec = await loadChatCodec(FIXTURE);
});

const folders: string[] = [];

afterEach(async () => {
  await Promise.all(folders.splice(0).map((folder) => rm(folder, { recursive: true })));
});

/** A copy of the fixture with another template. */
async function folderWith(template: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "codec-"));
  folders.push(folder);
  await cp(FIXTURE, folder, { recursive: true });
  await writeFile(join(folder, "chat_template.jinja"), template);
  return folder;
}

const user: ChatMessage = { role: "user", content: "What is 2 times 3?" };

function assistant(content: string): ChatMessage {
  return { role: "assistant", content };
}

const part = (text: string) => ({ type: "text" as const, text });

const call = (json: string) => `<tool_call>${json}</tool_call>`;

const parse = (text: string) => codec.parseAnswer(codec.encode(text));

const stop = () => codec.encode("<|im_end|>");

describe("agrees with the Python libraries", () => {
  test.each(cases.texts)("on the ids of $text, and back", ({ text, ids }) => {
    expect(codec.encode(text)).toEqual(ids);
    expect(codec.decode(ids)).toBe(text);
  });

  test.each(cases.conversations)("on the prompt of: $name", ({ messages, tools, text, ids }) => {
    const prompt_T = codec.renderPrompt(messages, tools);
    expect(codec.decode(prompt_T)).toBe(text);
    expect(prompt_T).toEqual(ids);
  });
});

describe("renderPrompt", () => {
  test("text parts are joined, other parts refused", () => {
    const inParts: ChatMessage = { role: "user", content: [part("What is"), part("2 times 3?")] };
    expect(codec.decode(codec.renderPrompt([inParts]))).toContain("What is\n2 times 3?<|im_end|>");
    const image: ChatMessage = { role: "user", content: [{ type: "image_url" }] };
    expect(() => codec.renderPrompt([image])).toThrow("image_url part");
  });

  test("a developer message is a system message", () => {
    const system: ChatMessage = { role: "system", content: "Be brief." };
    const developer: ChatMessage = { role: "developer", content: "Be brief." };
    expect(codec.renderPrompt([developer, user])).toEqual(codec.renderPrompt([system, user]));
  });

  test("what the template refuses is a validation error in the template's words", () => {
    const late: ChatMessage[] = [user, { role: "system", content: "Too late." }];
    expect(() => codec.renderPrompt(late)).toThrow(
      expect.objectContaining({
        code: "VALIDATION",
        message: expect.stringContaining("A system message must come first."),
      }),
    );
  });
});

describe("renderContinuation", () => {
  const tools = cases.conversations.find(({ name }) => name === "tools")?.tools ?? [];

  test("prompt, answer and continuation are the ids of the whole conversation", () => {
    const conversation = cases.conversations.find(({ name }) => name === "second question");
    const { messages, ids } = conversation ?? expect.fail("no such case");
    const ids_T = codec.renderPrompt(messages.slice(0, 2), tools);
    for (const [answerAt, text] of [
      [2, '<tool_call>{"name":"multiply","arguments":{"a": -3.25, "b": 0.7}}</tool_call>'],
      [4, "The result is:\n#### -2.275"],
    ] as const) {
      const answer_T = [...codec.encode(text), ...stop()];
      const continuation_T = codec.renderContinuation(
        messages.slice(0, answerAt + 1),
        [messages[answerAt + 1] ?? user],
        tools,
        { lastTokens: answer_T },
      );
      ids_T.push(...answer_T, ...(continuation_T === "break" ? [] : continuation_T));
    }
    expect(ids_T).toEqual(ids);
  });

  test("only what follows the sampled answer is tokenised, however the answer was spelled", () => {
    const letters_T = "The result".split("").flatMap((letter) => codec.encode(letter));
    const past = [user, assistant("The result")];
    const continuation_T = codec.renderContinuation(past, [user], [], {
      lastTokens: [...letters_T, ...stop()],
    });
    expect(continuation_T).not.toBe("break");
    expect(codec.decode(continuation_T as number[])).toBe(
      "\n<|im_start|>user\nWhat is 2 times 3?<|im_end|>\n<|im_start|>assistant\n",
    );
  });

  test("an answer that was cut off by its length gets the stop token first", () => {
    const past = [user, assistant("The res")];
    const cut = codec.renderContinuation(past, [user], [], { lastTokens: codec.encode("The res") });
    const whole = codec.renderContinuation(past, [user], [], { lastTokens: stop() });
    expect(cut).toEqual([...stop(), ...(whole as number[])]);
  });

  test("a stop token that the answer spells out as text does not confuse it", () => {
    const past = [user, assistant("a<|im_end|>b")];
    const continuation_T = codec.renderContinuation(past, [user], [], { lastTokens: stop() });
    expect(codec.decode(continuation_T as number[])).toMatch(/^\n<\|im_start\|>user/);
  });

  test("a template that rewrites the past says break", async () => {
    const template = `{%- for message in messages -%}
{{ "<|im_start|>" + message.role + "\n" + (message.content if loop.last or message.role == "user" else "…") + "<|im_end|>\n" }}
{%- endfor -%}{{ "<|im_start|>assistant\n" if add_generation_prompt else "" }}`;
    const forgetful = await loadChatCodec(await folderWith(template));
    const lastTokens = forgetful.encode("Six.<|im_end|>");
    expect(forgetful.renderContinuation([user, assistant("Six.")], [user], [], { lastTokens })).toBe("break");
  });

  test("a template that ends some turns with another stop token", async () => {
    const template = `{%- for message in messages -%}
{{ message.role + ": " + message.content + ("<|endoftext|>" if message.role == "assistant" and messages[loop.index0 - 1].content == "x" else "<|im_end|>") }}
{%- endfor -%}{{ "assistant: " if add_generation_prompt else "" }}`;
    const mixed = await loadChatCodec(await folderWith(template));
    const past = [{ ...user, content: "x" }, assistant("Six.")];
    const lastTokens = mixed.encode("Six.<|endoftext|>");
    const continuation_T = mixed.renderContinuation(past, [user], [], { lastTokens });
    expect(mixed.decode(continuation_T as number[])).toBe("user: What is 2 times 3?<|im_end|>assistant: ");
  });

  test("a template without an end of turn appends what follows", async () => {
    const template = `{%- for message in messages -%}{{ message.role + ": " + message.content + "\n" }}{%- endfor -%}
{{ "assistant: " if add_generation_prompt else "" }}`;
    const plain = await loadChatCodec(await folderWith(template));
    const past = [{ ...user, content: "<|im_end|>" }, assistant("Six.")];
    const continuation_T = plain.renderContinuation(past, [user], [], { lastTokens: plain.encode("Six.") });
    expect(plain.decode(continuation_T as number[])).toBe("user: What is 2 times 3?\nassistant: ");
  });
});

describe("stop tokens", () => {
  test("are the end of text and the end of a turn", () => {
    expect(codec.stopTokens.map((id) => codec.decode([id])).sort()).toEqual(["<|endoftext|>", "<|im_end|>"]);
  });

  test("include those of generation_config.json", async () => {
    const folder = await folderWith("{{ messages[1].content }}");
    await writeFile(join(folder, "generation_config.json"), JSON.stringify({ eos_token_id: [7, 9] }));
    expect((await loadChatCodec(folder)).stopTokens).toEqual(expect.arrayContaining([7, 9]));
  });
});

describe("parseAnswer", () => {
  const valid = '{"name": "multiply", "arguments": {"a": -3.25, "b": 0.7}}';
  const toolCall = { name: "multiply", arguments: '{"a": -3.25, "b": 0.7}' };

  test.each([
    ["#### 6<|im_end|>", { content: "#### 6", toolCalls: [], malformedToolCall: false }],
    ["", { content: "", toolCalls: [], malformedToolCall: false }],
    [`${call(valid)}<|im_end|>`, { content: null, toolCalls: [toolCall], malformedToolCall: false }],
    [
      `Let me see.\n${call(`\n${valid}\n`)}\n${call(valid)}<|im_end|>`,
      { content: "Let me see.", toolCalls: [toolCall, toolCall], malformedToolCall: false },
    ],
    ["a<|im_start|>b<|im_end|>", { content: "ab", toolCalls: [], malformedToolCall: false }],
  ])("%j", (text, answer) => {
    expect(parse(text)).toEqual(answer);
  });

  test.each([
    call("{oops"),
    call("[1]"),
    call('{"name": "", "arguments": {}}'),
    call('{"name": "multiply", "arguments": [1]}'),
    call('{"arguments": {}}'),
    `<tool_call>${valid}`,
    "<tool_call>",
  ])("%j is no call and stays as text", (text) => {
    expect(parse(text)).toEqual({ content: text, toolCalls: [], malformedToolCall: true });
  });

  test.each([
    ['{"name":"f","arguments":{}}', "{}"],
    [
      '{ "arguments" : {"n": 12345678901234567890, "x": 1.50} , "name": "f" }',
      '{"n": 12345678901234567890, "x": 1.50}',
    ],
    [
      '{"name":"f","id":[1,{"arguments":{"no":1}}],"arguments":{"arguments":{"a":[1,2]},"s":"\\"},{\\\\"}}',
      '{"arguments":{"a":[1,2]},"s":"\\"},{\\\\"}',
    ],
    ['{"name":"f","arguments":{"a":1},"arguments":{"a":2}}', '{"a":2}'],
    ['{"name":"f","\\u0061rguments":{"a":1}}', '{"a":1}'],
    ['{"name":"f","arguments":{"a":1},"":"arguments"}', '{"a":1}'],
  ])("arguments keep the model's spelling: %s", (json, text) => {
    expect(parse(call(json)).toolCalls).toEqual([{ name: "f", arguments: text }]);
  });

  test("a valid call next to a malformed one is kept", () => {
    expect(parse(`${call("{")} ${call(valid)}`)).toEqual({
      content: call("{"),
      toolCalls: [toolCall],
      malformedToolCall: true,
    });
  });

  test("any ids are parsed: broken UTF-8, unknown ids, none", () => {
    const [firstByte] = codec.encode("東");
    expect(codec.parseAnswer([firstByte ?? 0, 1_000_000, -1]).content).toBe("\ufffd");
    for (let id = 0; id < 420; id++) expect(typeof codec.parseAnswer([id, 3, id]).content).toBe("string");
    expect(codec.parseAnswer([]).content).toBe("");
  });
});

test("a folder without its files names what is missing", async () => {
  const folder = await folderWith("{% if %}");
  await expect(loadChatCodec(folder)).rejects.toMatchObject({
    code: "VALIDATION",
    message: expect.stringContaining("does not parse"),
  });
  await rm(join(folder, "chat_template.jinja"));
  await expect(loadChatCodec(folder)).rejects.toThrow("has no chat template");
  await rm(join(folder, "tokenizer.json"));
  await expect(loadChatCodec(folder)).rejects.toMatchObject({ code: "NOT_FOUND" });
});
