import type { AgentInputItem } from "@openai/agents";
import type { RawMessage } from "@osmosis/protocol";
import { ChatMessage, OsmosisError, chatText } from "@osmosis/protocol";

/**
 * Chat messages as input items of the OpenAI Agents SDK.
 *
 * @throws OsmosisError `VALIDATION` when a message is not in chat form.
 */
export function toAgentInput(messages: readonly RawMessage[]): AgentInputItem[] {
  return messages.flatMap((message, i) => {
    const parsed = ChatMessage.safeParse(message);
    if (parsed.success) return itemsOf(parsed.data);
    throw new OsmosisError("VALIDATION", `Message ${i} of the prompt is not in chat form.`, {
      hint: 'It needs a role and a content, such as { role: "user", content: "…" }.',
    });
  });
}

function itemsOf(message: ChatMessage): AgentInputItem[] {
  switch (message.role) {
    case "system":
    case "developer":
      return [{ role: "system", content: chatText(message.content) }];
    case "user":
      return [{ role: "user", content: userContent(message.content) }];
    case "assistant":
      return [...assistantText(message), ...functionCalls(message)];
    case "tool":
      return [functionResult(message.tool_call_id, message.content)];
    case "function":
      return [functionResult(message.name, message.content ?? "")];
    default:
      return message satisfies never;
  }
}

type UserItem = Extract<AgentInputItem, { role: "user" }>;
type UserContentPart = Exclude<UserItem["content"], string>[number];
type UserChatMessage = Extract<ChatMessage, { role: "user" }>;

function userContent(content: UserChatMessage["content"]): UserItem["content"] {
  if (typeof content === "string") return content;
  return content.flatMap((part): UserContentPart[] => {
    const text = part["text"];
    if (part.type === "text" && typeof text === "string") return [{ type: "input_text", text }];
    const image = part["image_url"];
    const url = typeof image === "object" && image !== null && "url" in image ? image.url : image;
    return part.type === "image_url" && typeof url === "string" ? [{ type: "input_image", image: url }] : [];
  });
}

type AssistantChatMessage = Extract<ChatMessage, { role: "assistant" }>;

function assistantText(message: AssistantChatMessage): AgentInputItem[] {
  const text = chatText(message.content);
  if (text === "") return [];
  return [{ role: "assistant", status: "completed", content: [{ type: "output_text", text }] }];
}

function functionCalls(message: AssistantChatMessage): AgentInputItem[] {
  return (message.tool_calls ?? []).map((call) => ({
    type: "function_call",
    callId: call.id,
    name: call.function.name,
    arguments: call.function.arguments,
    status: "completed",
  }));
}

function functionResult(callId: string, content: string | readonly { type: string }[]): AgentInputItem {
  const output = typeof content === "string" ? content : chatText([...content]);
  return { type: "function_call_result", callId, name: "", status: "completed", output };
}
