import { chatText } from "@osmosis/protocol";
import type { ChatMessage, ChatTool } from "@osmosis/protocol";

/**
 * A text that is equal for two messages exactly when they say the same to a model.
 *
 * Clients rebuild history from their own objects. So that does not count: the order of JSON keys, absent against null
 * against empty content, text against a list of text parts, white space around an answer, the ids of tool calls, and
 * fields that no model sees. Reasoning does not count either, since most clients drop it.
 */
export function messageFingerprint(message: ChatMessage): string {
  switch (message.role) {
    case "assistant": {
      const calls = (message.tool_calls ?? []).map((call) => [
        call.function.name,
        normalArguments(call.function.arguments),
      ]);
      return JSON.stringify(["assistant", contentKey(message.content).trim(), calls]);
    }
    case "tool":
      return JSON.stringify(["tool", contentKey(message.content)]);
    case "function":
      return JSON.stringify(["function", message.name, contentKey(message.content)]);
    case "system":
    case "developer":
      return JSON.stringify(["system", contentKey(message.content)]);
    case "user":
      return JSON.stringify(["user", contentKey(message.content)]);
  }
}

/** A text that is equal for two tool lists exactly when a model is shown the same. */
export function toolsFingerprint(tools: readonly ChatTool[]): string {
  return canonicalJson(tools.map((tool) => tool.function));
}

function contentKey(content: ChatMessage["content"]): string {
  const onlyText =
    content == null || typeof content === "string" || content.every(({ type }) => type === "text");
  return onlyText ? chatText(content) : canonicalJson(content);
}

/** Arguments as a value; those that do not parse as their text. */
function normalArguments(text: string): string {
  try {
    return canonicalJson(JSON.parse(text));
  } catch {
    return text;
  }
}

/** JSON with sorted keys, where null and absent are one. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) => {
    if (typeof item !== "object" || item === null || Array.isArray(item)) return item;
    return Object.fromEntries(
      Object.entries(item)
        .filter(([, field]) => field != null)
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    );
  });
}
