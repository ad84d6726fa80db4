/** A message as the page shows it. */
export type Turn = {
  readonly role: string;
  readonly text: string;
  /** The tool whose result this is, when the conversation says. */
  readonly tool?: string;
  readonly calls: readonly ToolCall[];
};

export type ToolCall = { readonly id: string; readonly name: string; readonly argumentsText: string };

/**
 * Reads the messages of chat completions, and those of the Responses form that agent frameworks keep: there a tool call
 * and its result are items of their own.
 */
export function turnsOf(messages: readonly Readonly<Record<string, unknown>>[]): Turn[] {
  const toolNames = new Map<string, string>();
  return messages.map((message, index) => {
    const turn = turnOf(message, index, toolNames);
    for (const { id, name } of turn.calls) toolNames.set(id, name);
    return turn;
  });
}

function turnOf(
  message: Readonly<Record<string, unknown>>,
  index: number,
  toolNames: ReadonlyMap<string, string>,
): Turn {
  const tool = toolNames.get(idOf(message, index)) ?? nameOf(message);
  const result = { role: "tool", calls: [], ...(tool === undefined ? {} : { tool }) };
  switch (message["type"]) {
    case "function_call":
      return { role: "assistant", text: "", calls: [callOf(message, index)] };
    case "function_call_output":
    case "function_call_result":
      return { ...result, text: textOf(message["output"]) };
    default:
      if (message["role"] === "tool") return { ...result, text: textOf(message["content"]) };
      if (typeof message["role"] !== "string") {
        return { role: nameOfType(message), text: JSON.stringify(message, null, 2), calls: [] };
      }
      return {
        role: message["role"],
        text: textOf(message["content"]),
        calls: listOf(message["tool_calls"]).map((call, position) => callOf(call, position)),
      };
  }
}

/** Of an item that is no message: `reasoning`, for one. */
function nameOfType(item: Readonly<Record<string, unknown>>): string {
  return typeof item["type"] === "string" ? item["type"] : "unknown";
}

function callOf(call: Readonly<Record<string, unknown>>, position: number): ToolCall {
  const spec = recordOf(call["function"]) ?? call;
  return {
    id: idOf(call, position),
    name: nameOf(spec) ?? "unknown",
    argumentsText:
      typeof spec["arguments"] === "string" ? spec["arguments"] : JSON.stringify(spec["arguments"] ?? {}),
  };
}

/** What connects a call with its result. */
function idOf(item: Readonly<Record<string, unknown>>, position: number): string {
  for (const key of ["tool_call_id", "call_id", "callId", "id"]) {
    const value = item[key];
    if (typeof value === "string") return value;
  }
  return String(position);
}

function nameOf(item: Readonly<Record<string, unknown>>): string | undefined {
  return typeof item["name"] === "string" ? item["name"] : undefined;
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

/** Longer arguments get lines of their own. */
const ONE_LINE = 72;

/** Long arguments on several lines when they are an object; anything else as the model wrote it. */
export function prettyArguments(text: string): string {
  if (text.length <= ONE_LINE) return text;
  try {
    const value: unknown = JSON.parse(text);
    if (recordOf(value) === undefined) return text;
    const pretty = JSON.stringify(value, null, 2);
    // What does not survive the round trip, such as `1.50`, is shown as it was written.
    return withoutSpace(pretty) === withoutSpace(text) ? pretty : text;
  } catch {
    return text;
  }
}

function withoutSpace(text: string): string {
  return text.replaceAll(/\s/g, "");
}
