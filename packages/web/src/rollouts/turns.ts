/** A message as the page shows it. */
export type Turn = {
  readonly role: string;
  readonly text: string;
  readonly calls: readonly { readonly id: string; readonly name: string; readonly argumentsText: string }[];
};

/**
 * Reads the messages of chat completions, and those of the Responses form that agent frameworks keep: there a tool call
 * and its result are items of their own.
 */
export function turnsOf(messages: readonly Readonly<Record<string, unknown>>[]): Turn[] {
  return messages.map((message, index) => {
    switch (message["type"]) {
      case "function_call":
        return { role: "assistant", text: "", calls: [callOf(message, index)] };
      case "function_call_output":
      case "function_call_result":
        return { role: "tool", text: textOf(message["output"]), calls: [] };
      default:
        return {
          role: typeof message["role"] === "string" ? message["role"] : "unknown",
          text: textOf(message["content"]),
          calls: listOf(message["tool_calls"]).map((call, position) => callOf(call, position)),
        };
    }
  });
}

function callOf(call: Readonly<Record<string, unknown>>, position: number): Turn["calls"][number] {
  const spec = recordOf(call["function"]) ?? call;
  return {
    id: typeof call["id"] === "string" ? call["id"] : String(position),
    name: typeof spec["name"] === "string" ? spec["name"] : "unknown",
    argumentsText:
      typeof spec["arguments"] === "string" ? spec["arguments"] : JSON.stringify(spec["arguments"] ?? {}),
  };
}

/** Text of a string, of content parts, or of anything else as JSON. */
function textOf(content: unknown): string {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map(textOf).join("\n");
  const part = recordOf(content);
  if (part !== undefined && typeof part["text"] === "string") return part["text"];
  return JSON.stringify(content);
}

function listOf(value: unknown): Readonly<Record<string, unknown>>[] {
  if (!Array.isArray(value)) return [];
  return value.map((one: unknown) => recordOf(one)).filter((one) => one !== undefined);
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : undefined;
}
