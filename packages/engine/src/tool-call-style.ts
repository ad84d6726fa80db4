import type { ChatMessage, ChatTool } from "@osmosis/protocol";
import type { ChatTemplate } from "./chat-template.ts";
import { parseLlamaToolCalls } from "./llama-tool-call-text.ts";
import { parseToolCalls, type ParsedAnswer } from "./tool-call-text.ts";

const TOOL: ChatTool = {
  type: "function",
  function: {
    name: "look_up",
    description: "Looks a word up.",
    parameters: { type: "object", properties: { word: { type: "string" } } },
  },
};

const CALL: readonly ChatMessage[] = [
  { role: "user", content: "What is a word?" },
  {
    role: "assistant",
    content: null,
    tool_calls: [
      { id: "call00001", type: "function", function: { name: "look_up", arguments: '{"word":"word"}' } },
    ],
  },
];

/**
 * How answers of a model are split into text and tool calls: as its chat template writes the calls of earlier turns.
 * Where a template writes none, or refuses them, the form of Hermes and Qwen is assumed.
 */
export function findToolCallParser(template: ChatTemplate): (text: string) => ParsedAnswer {
  let text = "";
  try {
    text = template.render(CALL, [TOOL], { generationPrompt: false });
  } catch {
    return parseToolCalls;
  }
  const written = text.slice(text.lastIndexOf("What is a word?"));
  const isLlama = /"parameters"\s*:\s*\{\s*"word"/.test(written) && !written.includes("<tool_call>");
  return isLlama ? parseLlamaToolCalls : parseToolCalls;
}
