import type { ChatCodec } from "@osmosis/engine";
import type { TinkerSample } from "@osmosis/protocol";

/** What ends an answer: tokens, or texts, which a codec has to look for. */
export type Stops = {
  readonly tokens: readonly number[];
  readonly texts: readonly string[];
  readonly codec?: ChatCodec;
};

/** Absent: the ends of the model's own tokenizer. A text may span tokens, or be a part of one. */
export async function stopsOf(
  load: () => Promise<ChatCodec>,
  stop: TinkerSample["sampling_params"]["stop"],
): Promise<Stops> {
  const stops = typeof stop === "string" ? [stop] : stop;
  const tokens = (stops ?? []).filter((one) => typeof one === "number");
  const texts = (stops ?? []).filter((one) => typeof one === "string").filter((text) => text !== "");
  if (stops != null && texts.length === 0) return { tokens, texts };
  const codec = await load();
  if (stops == null) return { tokens: codec.stopTokens, texts };
  // Where a text is one token, sampling ends with it, not at the end of a piece.
  const whole = texts.map((text) => codec.encode(text)).filter((ids) => ids.length === 1);
  return { tokens: whole.flat(), texts, codec };
}

/**
 * How many tokens an answer keeps so that it ends with the one that completes a stop text; undefined without one. None
 * was found in the first `seen` tokens.
 */
export function findStop(
  codec: ChatCodec,
  tokens_T: readonly number[],
  texts: readonly string[],
  seen: number,
): number | undefined {
  const holdsOne = (length: number) => {
    const text = codec.decode(tokens_T.slice(0, length));
    return texts.some((stop) => text.includes(stop));
  };
  if (!holdsOne(tokens_T.length)) return undefined;
  let length = seen + 1;
  while (length < tokens_T.length && !holdsOne(length)) length += 1;
  return length;
}
