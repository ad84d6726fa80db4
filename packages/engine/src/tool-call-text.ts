/** A tool call as the model wrote it. */
export type ParsedToolCall = {
  readonly name: string;
  /** JSON text of an object, letter by letter as the model wrote it: numbers keep all of their digits. */
  readonly arguments: string;
};

export type ParsedAnswer = {
  /** The text outside of tool calls; null when there is nothing but tool calls. */
  readonly content: string | null;
  readonly toolCalls: readonly ParsedToolCall[];
  /** A tool call was begun but is no call: broken JSON, no name, arguments that are no object, or no end. */
  readonly malformedToolCall: boolean;
};

const OPEN = "<tool_call>";
const CLOSE = "</tool_call>";

/** Comes before a tool call of Llama's, though not always. */
export const PYTHON_TAG = "<|python_tag|>";

/** The tokens that delimit tool calls and reasoning: they stay in the text even where a tokenizer calls them special. */
export const ANSWER_MARKERS: ReadonlySet<string> = new Set([OPEN, CLOSE, PYTHON_TAG, "<think>", "</think>"]);

/**
 * Splits an answer in Hermes/Qwen form, `<tool_call>{"name":…,"arguments":{…}}</tool_call>`, into text and calls.
 * Never throws: what is no call stays in the text.
 */
export function parseToolCalls(text: string): ParsedAnswer {
  const toolCalls: ParsedToolCall[] = [];
  let rest = "";
  let malformedToolCall = false;
  let position = 0;
  for (;;) {
    const open = text.indexOf(OPEN, position);
    if (open < 0) break;
    const close = text.indexOf(CLOSE, open);
    const end = close < 0 ? text.length : close + CLOSE.length;
    const call = close < 0 ? undefined : parseCall(text.slice(open + OPEN.length, close), ["arguments"]);
    rest += text.slice(position, call === undefined ? end : open);
    if (call === undefined) malformedToolCall = true;
    else toolCalls.push(call);
    position = end;
  }
  rest += text.slice(position);
  if (toolCalls.length === 0) return { content: rest, toolCalls, malformedToolCall };
  const content = rest.trim();
  return { content: content === "" ? null : content, toolCalls, malformedToolCall };
}

/** The call that a JSON object describes; its arguments are the first of `members` that is there. */
export function parseCall(json: string, members: readonly string[]): ParsedToolCall | undefined {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return undefined;
  }
  if (!isObject(value)) return undefined;
  const { name } = value;
  const member = members.find((one) => Object.hasOwn(value, one));
  if (typeof name !== "string" || name === "" || member === undefined || !isObject(value[member]))
    return undefined;
  return { name, arguments: memberText(json, member) };
}

/** A string, a bracket or another mark, or a literal. */
const JSON_TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s"{}[\]:,]+/g;

/** The text of a member's value, given the text of a valid JSON object that has it; the last one if it has several. */
function memberText(json: string, member: string): string {
  let depth = 0;
  let key: string | undefined;
  let valueStart = 0;
  let found = "";
  for (const { 0: token, index } of json.matchAll(JSON_TOKEN)) {
    if (token === "}" || token === "]") depth--;
    if ((depth === 0 || (depth === 1 && token === ",")) && index > 0 && key === member) {
      found = json.slice(valueStart, index).trim();
    }
    if (depth === 1 && token === ",") key = undefined;
    if (depth === 1 && token === ":") valueStart = index + 1;
    if (depth === 1 && key === undefined && token.startsWith('"')) key = String(JSON.parse(token));
    if (token === "{" || token === "[") depth++;
  }
  return found;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
