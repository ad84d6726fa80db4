/**
 * Between conversations and token ids. An answer is tokenised once, by the model that sampled it: a later call of the
 * same conversation keeps those ids and appends `renderContinuation`, which tokenises the new messages alone. Rendering
 * the whole conversation anew would now and then give other ids for the same text, and the trainer would then learn
 * from tokens that nobody sampled.
 */
import { join } from "node:path";
import type { ChatMessage, ChatTool } from "@osmosis/protocol";
import { z } from "zod";
import { loadChatTemplate } from "./chat-template.ts";
import type { ChatTemplate } from "./chat-template.ts";
import { loadTokenizer, readJson, readText, TokenizerConfig } from "./tokenizer.ts";
import type { TextTokenizer } from "./tokenizer.ts";
import { findToolCallParser } from "./tool-call-style.ts";
import { ANSWER_MARKERS } from "./tool-call-text.ts";
import type { ParsedAnswer } from "./tool-call-text.ts";

export type ChatCodec = {
  /** Ids that end an answer. */
  readonly stopTokens: readonly number[];
  encode(text: string): number[];
  /** Never throws; bytes that are no valid UTF-8 become U+FFFD. */
  decode(tokens_T: readonly number[]): string;
  /**
   * The ids of a whole conversation, up to where the model's answer begins.
   * @throws OsmosisError `VALIDATION` when the chat template refuses the conversation.
   */
  renderPrompt(messages: readonly ChatMessage[], tools?: readonly ChatTool[]): number[];
  /**
   * The ids to append to prompt and sampled answer so that the model can answer `newMessages`. "break" when the template
   * renders the past differently once the new messages are there (some drop earlier reasoning), so that the sampled ids
   * are no longer what the model would be shown; the caller then starts over with `renderPrompt`.
   * @param previousMessages The conversation so far; its last message is the sampled answer.
   * @throws OsmosisError `VALIDATION` when the chat template refuses the conversation.
   */
  renderContinuation(
    previousMessages: readonly ChatMessage[],
    newMessages: readonly ChatMessage[],
    tools: readonly ChatTool[],
    options: {
      /** The ids of the sampled answer. Without a stop token at their end, the continuation begins with one. */
      readonly lastTokens: readonly number[];
    },
  ): number[] | "break";
  /** Splits sampled ids into text and tool calls. Never throws: what is no call stays in the text. */
  parseAnswer(tokens_T: readonly number[]): ParsedAnswer;
};

/**
 * Loads tokenizer and chat template of a Hugging Face model folder.
 * @throws OsmosisError `NOT_FOUND` for a missing file, `VALIDATION` for one that cannot be used.
 */
export async function loadChatCodec(folder: string): Promise<ChatCodec> {
  const config = await readJson(join(folder, "tokenizer_config.json"), TokenizerConfig);
  const tokenizer = await loadTokenizer(folder, config);
  const template = await loadChatTemplate(folder, config);
  const turnEnd = findTurnEnd(tokenizer, template);
  const stopTokens = await findStopTokens({ folder, config, tokenizer, turnEnd });
  const parseToolCalls = findToolCallParser(template);
  const stopTexts = stopTokens.flatMap((id) => tokenizer.addedToken(id)?.text ?? []);

  /** Where the stop token after the last message begins in the text; undefined when the template writes none. */
  function endOfLastTurn(
    past: string,
    messages: readonly ChatMessage[],
    tools: readonly ChatTool[],
  ): number | undefined {
    const before = messages.length > 1 ? renderBefore(messages.slice(0, -1), tools) : "";
    const start = past.startsWith(before) ? before.length : 0;
    const end = Math.max(...stopTexts.map((text) => past.lastIndexOf(text)), -1);
    return end < start ? undefined : end;
  }

  function renderBefore(messages: readonly ChatMessage[], tools: readonly ChatTool[]): string {
    try {
      return template.render(messages, tools, { generationPrompt: false });
    } catch {
      // A template may refuse the beginning of a conversation that it accepts as a whole.
      return "";
    }
  }

  return {
    stopTokens,
    encode: (text) => tokenizer.encode(text),
    decode: (tokens_T) => tokenizer.decode(tokens_T),
    renderPrompt: (messages, tools = []) =>
      tokenizer.encode(template.render(messages, tools, { generationPrompt: true })),

    renderContinuation: (previousMessages, newMessages, tools, { lastTokens }) => {
      const past = template.render(previousMessages, tools, { generationPrompt: false });
      const whole = template.render([...previousMessages, ...newMessages], tools, { generationPrompt: true });
      if (!whole.startsWith(past)) return "break";
      const end = endOfLastTurn(past, previousMessages, tools);
      if (end === undefined) return tokenizer.encode(whole.slice(past.length));
      // The stop token is encoded along with what follows it, because a tokenizer may treat the start of a text
      // differently from its middle.
      const ids = tokenizer.encode(whole.slice(end));
      const lastToken = lastTokens.at(-1);
      return lastToken !== undefined && stopTokens.includes(lastToken) ? ids.slice(1) : ids;
    },

    parseAnswer: (tokens_T) => {
      const last = tokens_T.at(-1);
      const answer_T = last !== undefined && stopTokens.includes(last) ? tokens_T.slice(0, -1) : tokens_T;
      const visible_T = answer_T.filter((id) => {
        const added = tokenizer.addedToken(id);
        return added === undefined || !added.special || ANSWER_MARKERS.has(added.text);
      });
      return parseToolCalls(tokenizer.decode(visible_T));
    },
  };
}

const GenerationConfig = z.looseObject({
  eos_token_id: z.union([z.int(), z.array(z.int())]).nullish(),
});

/** The special token that the chat template puts after an assistant's turn; some write none. */
function findTurnEnd(tokenizer: TextTokenizer, template: ChatTemplate): number | undefined {
  const answer = "An answer.";
  const messages: ChatMessage[] = [
    { role: "user", content: "A question." },
    { role: "assistant", content: answer },
  ];
  const text = template.render(messages, [], { generationPrompt: false });
  const start = text.lastIndexOf(answer);
  const [id] = start < 0 ? [] : tokenizer.encode(text.slice(start + answer.length).trimStart());
  return id !== undefined && tokenizer.addedToken(id)?.special ? id : undefined;
}

/** The end tokens of the two configuration files and that of the template, which base models often fail to list. */
async function findStopTokens(model: {
  readonly folder: string;
  readonly config: TokenizerConfig;
  readonly tokenizer: TextTokenizer;
  readonly turnEnd: number | undefined;
}): Promise<number[]> {
  const { folder, config, tokenizer, turnEnd } = model;
  const stopTokens = new Set<number>();
  if (turnEnd !== undefined) stopTokens.add(turnEnd);
  const eos = config.eos_token == null ? undefined : tokenizer.tokenId(config.eos_token);
  if (eos !== undefined) stopTokens.add(eos);
  const path = join(folder, "generation_config.json");
  if ((await readText(path)) !== undefined) {
    const { eos_token_id } = await readJson(path, GenerationConfig);
    for (const id of [eos_token_id ?? []].flat()) stopTokens.add(id);
  }
  return [...stopTokens];
}
