import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { loadChatCodec, type ChatCodec } from "./chat-codec.ts";
import { parseLlamaToolCalls } from "./llama-tool-call-text.ts";

const CHATML = fileURLToPath(new URL("../fixtures/chatml", import.meta.url));

/** Writes calls as the templates of Llama 3 do, and like them refuses more than one. */
const TEMPLATE = `{{- bos_token }}
{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.tool_calls|length != 1 %}{{- raise_exception("one call at once") }}{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- "<|im_start|>assistant\\n" + '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- "}<|im_end|>" }}
{%- else %}
{{- "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>" }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|im_start|>assistant\\n" }}{%- endif %}`;

const TokenizerFile = z.looseObject({ added_tokens: z.array(z.looseObject({ id: z.int() })) });

describe("a model whose template writes calls as Llama's do", () => {
  let folder = "";
  let codec: ChatCodec;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "osmosis-llama-"));
    await cp(CHATML, folder, { recursive: true });
    await writeFile(join(folder, "chat_template.jinja"), TEMPLATE);
    const path = join(folder, "tokenizer.json");
    const file = TokenizerFile.parse(JSON.parse(await readFile(path, "utf8")));
    const [first] = file.added_tokens;
    file.added_tokens.push({ ...first, id: 407, content: "<|python_tag|>", special: true });
    await writeFile(path, JSON.stringify(file));
    codec = await loadChatCodec(folder);
  });
  afterAll(() => rm(folder, { recursive: true }));

  const parse = (text: string) => codec.parseAnswer(codec.encode(text));

  test("has its calls parsed, with the tag and without", () => {
    const call = '{"name": "multiply", "parameters": {"a": -3.250, "b": 7}}';
    const toolCalls = [{ name: "multiply", arguments: '{"a": -3.250, "b": 7}' }];
    expect(parse(`${call}<|im_end|>`)).toEqual({ content: null, toolCalls, malformedToolCall: false });
    expect(parse(`<|python_tag|>${call}`)).toEqual({ content: null, toolCalls, malformedToolCall: false });
    expect(parse(`Let me see.<|python_tag|>${call}`).content).toBe("Let me see.");
  });

  test("goes on after a call with the ids that were sampled", () => {
    const user = { role: "user", content: "2 times 3?" } as const;
    const answer = '{"name": "multiply", "parameters": {"a": 2}}<|im_end|>';
    const call = {
      id: "call_1",
      type: "function",
      function: { name: "multiply", arguments: '{"a": 2}' },
    } as const;
    const lastTokens = codec.encode(answer);
    const continuation = codec.renderContinuation(
      [user, { role: "assistant", content: null, tool_calls: [call] }],
      [{ role: "tool", tool_call_id: "call_1", content: "6" }],
      [],
      { lastTokens },
    );
    expect(continuation).not.toBe("break");
    const all = [
      ...codec.renderPrompt([user]),
      ...lastTokens,
      ...(continuation === "break" ? [] : continuation),
    ];
    expect(codec.decode(all)).toBe(
      `<|im_start|>user\n2 times 3?<|im_end|><|im_start|>assistant\n${answer}<|im_start|>tool\n6<|im_end|><|im_start|>assistant\n`,
    );
  });

  test("leaves calls in Hermes form in the text", () => {
    const text = '<tool_call>{"name":"f","arguments":{}}</tool_call>';
    expect(parse(text)).toEqual({ content: text, toolCalls: [], malformedToolCall: false });
  });
});

test("a model whose template writes calls in Hermes form has those parsed, and none of Llama's", async () => {
  const codec = await loadChatCodec(CHATML);
  expect(
    codec.parseAnswer(codec.encode('<tool_call>{"name":"f","arguments":{}}</tool_call>')).toolCalls,
  ).toHaveLength(1);
  expect(codec.parseAnswer(codec.encode('{"name":"f","parameters":{}}')).toolCalls).toEqual([]);
});

describe("an answer in Llama form", () => {
  test("may hold several calls, and a type", () => {
    const { toolCalls } = parseLlamaToolCalls(
      '{"type":"function","name":"f","parameters":{"x":"a;} {"}}; {"name":"g","arguments":{}}\n',
    );
    expect(toolCalls).toEqual([
      { name: "f", arguments: '{"x":"a;} {"}' },
      { name: "g", arguments: "{}" },
    ]);
  });

  test.each(["Paris.", '{"answer": 4}', 'I would say {"name":"f","parameters":{}}.', "", "{}", "[1]"])(
    "that is no call is text: %s",
    (text) => {
      expect(parseLlamaToolCalls(text)).toEqual({ content: text, toolCalls: [], malformedToolCall: false });
    },
  );

  test.each([
    '<|python_tag|>search.call(query="x")',
    '{"name": "f", "parameters": {"a": 1',
    '{"name": "f", "parameters": "a"}',
    '{"name":"f","parameters":{}};{"name":"g"}',
    "<|python_tag|>",
  ])("that begins a call and is none counts as malformed: %s", (text) => {
    expect(parseLlamaToolCalls(text)).toEqual({ content: text, toolCalls: [], malformedToolCall: true });
  });

  test("is parsed whatever it is, and loses no text", () => {
    const pieces = fc.constantFrom(
      "<|python_tag|>",
      '{"name":"f","parameters":{}}',
      "{",
      "}",
      '"',
      ";",
      "\\",
      "\n",
    );
    fc.assert(
      fc.property(fc.array(fc.oneof(pieces, fc.string())), (parts) => {
        const text = parts.join("");
        const { content, toolCalls } = parseLlamaToolCalls(text);
        if (toolCalls.length === 0) expect(content).toBe(text);
      }),
    );
  });

  test("gives any arguments back as they were", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.constantFrom(0, 2), (parameters, indent) => {
        const json = JSON.stringify({ name: "f", parameters }, null, indent);
        const { toolCalls } = parseLlamaToolCalls(`${json};${json}`);
        expect(toolCalls.map((call) => JSON.parse(call.arguments))).toEqual(
          [parameters, parameters].map((one) => JSON.parse(JSON.stringify(one))),
        );
      }),
    );
  });
});
