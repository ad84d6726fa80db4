import { parseCall, PYTHON_TAG, type ParsedAnswer } from "./tool-call-text.ts";

/**
 * Splits an answer in Llama form into text and calls: an answer that is nothing but
 * `{"name":…,"parameters":{…}}`, or text, `<|python_tag|>` and such an object. Several calls are separated by semicolons
 * or white space. Never throws: what is no call stays in the text.
 */
export function parseLlamaToolCalls(text: string): ParsedAnswer {
  const tag = text.indexOf(PYTHON_TAG);
  const before = tag < 0 ? "" : text.slice(0, tag).trim();
  const after = (tag < 0 ? text : text.slice(tag + PYTHON_TAG.length)).trim();
  const calls = objectsOf(after)?.map((json) => parseCall(json, ["parameters", "arguments"]));
  const toolCalls = calls?.filter((call) => call !== undefined) ?? [];
  if (toolCalls.length > 0 && toolCalls.length === calls?.length) {
    return { content: before === "" ? null : before, toolCalls, malformedToolCall: false };
  }
  return { content: text, toolCalls: [], malformedToolCall: tag >= 0 || BEGUN_CALL.test(after) };
}

const BEGUN_CALL =
  /^\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"[^"]*"\s*,\s*"(?:parameters|arguments)"/;

/** Strings, and the marks that matter outside of them. */
const STRING_OR_MARK = /"(?:[^"\\]|\\.)*"|[{};]|[^\s{};"]/g;

/** The top-level `{…}` of a text; undefined when there is anything else in it but semicolons and white space. */
function objectsOf(text: string): string[] | undefined {
  const objects: string[] = [];
  let depth = 0;
  let start = 0;
  for (const { 0: token, index } of text.matchAll(STRING_OR_MARK)) {
    if (token === "{") {
      if (depth === 0) start = index;
      depth++;
    } else if (depth === 0) {
      if (token !== ";") return undefined;
    } else if (token === "}") {
      depth--;
      if (depth === 0) objects.push(text.slice(start, index + 1));
    }
  }
  return depth === 0 ? objects : undefined;
}
