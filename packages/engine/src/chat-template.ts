import { join } from "node:path";
import { chatText, errorMessage, OsmosisError } from "@osmosis/protocol";
import type { ChatMessage, ChatTool } from "@osmosis/protocol";
import { compileTemplate, type BoundedTemplate } from "./bounded-template.ts";
import { readText } from "./tokenizer.ts";
import type { TokenizerConfig } from "./tokenizer.ts";

/** Renders a conversation as the text that the model was trained on. */
export type ChatTemplate = {
  /** @throws OsmosisError `VALIDATION` with the template's own words when it refuses the conversation, or does not end. */
  render(
    messages: readonly ChatMessage[],
    tools: readonly ChatTool[],
    options: {
      /** Ends with what the model's answer is to follow. */
      readonly generationPrompt: boolean;
    },
  ): string;
};

/**
 * Finds the chat template of a model folder: `chat_template.jinja`, else `chat_template` of `tokenizer_config.json`.
 * @throws OsmosisError `VALIDATION` when there is none, or when it is not valid Jinja.
 */
export async function loadChatTemplate(folder: string, config: TokenizerConfig): Promise<ChatTemplate> {
  const source = await templateSource(folder, config);
  // "developer" is OpenAI's newer name for a system message; most templates do not know it.
  const knowsDeveloper = source.plain.includes("developer");
  const plain = compile(folder, source.plain);
  const withTools = source.withTools === source.plain ? plain : compile(folder, source.withTools);
  const specialTokens = {
    bos_token: config.bos_token ?? "",
    eos_token: config.eos_token ?? "",
    pad_token: config.pad_token ?? "",
    unk_token: config.unk_token ?? "",
  };
  return {
    render: (messages, tools, { generationPrompt }) => {
      try {
        return (tools.length > 0 ? withTools : plain).render({
          ...specialTokens,
          messages: messages.map((message) => templateMessage(message, { knowsDeveloper })),
          tools: tools.length > 0 ? tools : null,
          documents: null,
          add_generation_prompt: generationPrompt,
        });
      } catch (error) {
        throw new OsmosisError(
          "VALIDATION",
          `The chat template refused the conversation: ${errorMessage(error)}`,
          {
            cause: error,
          },
        );
      }
    },
  };
}

async function templateSource(
  folder: string,
  { chat_template }: TokenizerConfig,
): Promise<{ plain: string; withTools: string }> {
  const file = await readText(join(folder, "chat_template.jinja"));
  if (file !== undefined) return { plain: file, withTools: file };
  if (typeof chat_template === "string") return { plain: chat_template, withTools: chat_template };
  const named = (name: string) => chat_template?.find((entry) => entry.name === name)?.template;
  const plain = named("default");
  if (plain === undefined) {
    throw new OsmosisError("VALIDATION", `${folder} has no chat template.`, {
      hint: "Add chat_template.jinja, or chat_template in tokenizer_config.json.",
    });
  }
  return { plain, withTools: named("tool_use") ?? plain };
}

function compile(folder: string, source: string): BoundedTemplate {
  try {
    return compileTemplate(source);
  } catch (error) {
    throw new OsmosisError(
      "VALIDATION",
      `${folder}: the chat template does not parse: ${errorMessage(error)}`,
      {
        cause: error,
      },
    );
  }
}

/**
 * Templates want text as content and an object as the arguments of a tool call, where the wire has parts, null and JSON
 * text. Arguments that are no JSON object stay text.
 */
function templateMessage(
  message: ChatMessage,
  { knowsDeveloper }: { readonly knowsDeveloper: boolean },
): Record<string, unknown> {
  const { content } = message;
  const unreadable = Array.isArray(content) && content.find((part) => part.type !== "text");
  if (unreadable) {
    throw new OsmosisError(
      "VALIDATION",
      `a ${unreadable.type} part was sent, but this model reads text only.`,
    );
  }
  const rendered: Record<string, unknown> = { ...message, content: chatText(content) };
  if (message.role === "developer" && !knowsDeveloper) rendered["role"] = "system";
  if (message.role !== "assistant") return rendered;
  if (message.tool_calls == null || message.tool_calls.length === 0) {
    delete rendered["tool_calls"];
  } else {
    rendered["tool_calls"] = message.tool_calls.map((call) => ({
      ...call,
      function: { ...call.function, arguments: objectOrText(call.function.arguments) },
    }));
  }
  return rendered;
}

function objectOrText(json: string): unknown {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === "object" && value !== null ? value : json;
  } catch {
    return json;
  }
}
