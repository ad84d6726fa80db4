import { fileURLToPath } from "node:url";
import { loadChatCodec } from "@osmosis/engine";
import type { ChatCodec } from "@osmosis/engine";

/** A real tokenizer with a ChatML template and Hermes tool calls. */
export function loadTestCodec(): Promise<ChatCodec> {
  return loadChatCodec(fileURLToPath(new URL("../../engine/fixtures/chatml", import.meta.url)));
}
