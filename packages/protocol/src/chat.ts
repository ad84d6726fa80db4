/**
 * OpenAI chat completions, as far as rollouts use them. Unknown fields are kept, so that a proxy loses nothing and a
 * reader of history sees what the client sent.
 */
import * as z from "zod";

export const ChatToolCall = z.looseObject({
  id: z.string(),
  type: z.literal("function").default("function"),
  function: z.looseObject({
    name: z.string(),
    /** JSON text as the model wrote it; it need not parse. */
    arguments: z.string(),
  }),
});
export type ChatToolCall = z.infer<typeof ChatToolCall>;

export const ChatTextPart = z.looseObject({ type: z.literal("text"), text: z.string() });
export type ChatTextPart = z.infer<typeof ChatTextPart>;

/** A part that is not text (image, audio, refusal) passes as it is. */
export const ChatContentPart = z.union([ChatTextPart, z.looseObject({ type: z.string() })]);
export type ChatContentPart = z.infer<typeof ChatContentPart>;

const Content = z.union([z.string(), z.array(ChatContentPart)]);

export const ChatSystemMessage = z.looseObject({ role: z.enum(["system", "developer"]), content: Content });
export type ChatSystemMessage = z.infer<typeof ChatSystemMessage>;

export const ChatUserMessage = z.looseObject({ role: z.literal("user"), content: Content });
export type ChatUserMessage = z.infer<typeof ChatUserMessage>;

export const ChatAssistantMessage = z.looseObject({
  role: z.literal("assistant"),
  content: Content.nullish(),
  tool_calls: z.array(ChatToolCall).nullish(),
  reasoning_content: z.string().nullish(),
  refusal: z.string().nullish(),
});
export type ChatAssistantMessage = z.infer<typeof ChatAssistantMessage>;

export const ChatToolMessage = z.looseObject({
  role: z.literal("tool"),
  tool_call_id: z.string(),
  content: Content,
});
export type ChatToolMessage = z.infer<typeof ChatToolMessage>;

/** The predecessor of tool messages; still sent by old clients. */
export const ChatFunctionMessage = z.looseObject({
  role: z.literal("function"),
  name: z.string(),
  content: z.string().nullish(),
});
export type ChatFunctionMessage = z.infer<typeof ChatFunctionMessage>;

export const ChatMessage = z.discriminatedUnion("role", [
  ChatSystemMessage,
  ChatUserMessage,
  ChatAssistantMessage,
  ChatToolMessage,
  ChatFunctionMessage,
]);
export type ChatMessage = z.infer<typeof ChatMessage>;

export const ChatTool = z.looseObject({
  type: z.literal("function"),
  function: z.looseObject({
    name: z.string().min(1),
    description: z.string().nullish(),
    /** JSON Schema of the arguments. */
    parameters: z.record(z.string(), z.unknown()).nullish(),
    strict: z.boolean().nullish(),
  }),
});
export type ChatTool = z.infer<typeof ChatTool>;

export const ChatToolChoice = z.union([
  z.enum(["none", "auto", "required"]),
  z.looseObject({ type: z.literal("function"), function: z.looseObject({ name: z.string() }) }),
]);
export type ChatToolChoice = z.infer<typeof ChatToolChoice>;

/** Body of `POST <base>/chat/completions`. */
export const ChatRequest = z.looseObject({
  model: z.string().default(""),
  messages: z.array(ChatMessage).min(1),
  tools: z.array(ChatTool).nullish(),
  tool_choice: ChatToolChoice.nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  max_tokens: z.int().positive().nullish(),
  /** The current name of `max_tokens`; it wins when both are given. */
  max_completion_tokens: z.int().positive().nullish(),
  stop: z.union([z.string(), z.array(z.string())]).nullish(),
  seed: z.int().nullish(),
  n: z.int().positive().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  logprobs: z.boolean().nullish(),
  response_format: z.looseObject({ type: z.string() }).nullish(),
});
export type ChatRequest = z.infer<typeof ChatRequest>;

export const ChatFinishReason = z.enum(["stop", "length", "tool_calls", "content_filter", "function_call"]);
export type ChatFinishReason = z.infer<typeof ChatFinishReason>;

export const ChatUsage = z.looseObject({
  prompt_tokens: z.number(),
  completion_tokens: z.number(),
  total_tokens: z.number(),
  prompt_tokens_details: z.looseObject({ cached_tokens: z.number().nullish() }).nullish(),
});
export type ChatUsage = z.infer<typeof ChatUsage>;

/** Reply to a request that does not stream. */
export const ChatResponse = z.looseObject({
  id: z.string(),
  object: z.literal("chat.completion"),
  /** Seconds since 1970. */
  created: z.number(),
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.int(),
      message: ChatAssistantMessage,
      finish_reason: ChatFinishReason.nullable(),
    }),
  ),
  usage: ChatUsage.nullish(),
});
export type ChatResponse = z.infer<typeof ChatResponse>;

/** What is added to one tool call by a chunk: the first one names it, later ones extend `arguments`. */
export const ChatToolCallDelta = z.looseObject({
  index: z.int(),
  id: z.string().nullish(),
  type: z.literal("function").nullish(),
  function: z.looseObject({ name: z.string().nullish(), arguments: z.string().nullish() }).nullish(),
});
export type ChatToolCallDelta = z.infer<typeof ChatToolCallDelta>;

/** One server-sent event of a streamed reply; the stream ends with the literal `[DONE]`. */
export const ChatChunk = z.looseObject({
  id: z.string(),
  object: z.literal("chat.completion.chunk"),
  created: z.number(),
  model: z.string(),
  /** Empty in the last chunk when usage was asked for. */
  choices: z.array(
    z.looseObject({
      index: z.int(),
      delta: z.looseObject({
        role: z.literal("assistant").nullish(),
        content: z.string().nullish(),
        tool_calls: z.array(ChatToolCallDelta).nullish(),
      }),
      finish_reason: ChatFinishReason.nullish(),
    }),
  ),
  usage: ChatUsage.nullish(),
});
export type ChatChunk = z.infer<typeof ChatChunk>;

/** Body of every reply that is not 2xx. */
export const ChatErrorBody = z.looseObject({
  error: z.looseObject({
    message: z.string(),
    type: z.string(),
    code: z.string().nullish(),
    param: z.string().nullish(),
  }),
});
export type ChatErrorBody = z.infer<typeof ChatErrorBody>;

/** The text of a message: its string, or its text parts joined with newlines; other parts are left out. */
export function chatText(content: ChatMessage["content"]): string {
  if (typeof content === "string") return content;
  if (content == null) return "";
  return content
    .flatMap((part) => (part.type === "text" && "text" in part ? [String(part["text"])] : []))
    .join("\n");
}
