import { OsmosisError } from "@osmosis/protocol";
import { HTTPException } from "hono/http-exception";

/**
 * The text of a request's body.
 *
 * @throws {HTTPException} 413 when it is longer than `maxBytes`, as soon as that is known.
 * @throws {OsmosisError} VALIDATION when it is not UTF-8, or ends before its announced end.
 */
export async function readText(request: Request, maxBytes: number): Promise<string> {
  const bytes = await readBytes(request, maxBytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new OsmosisError("VALIDATION", "The request body is not UTF-8.", { hint: "Send JSON in UTF-8." });
  }
}

/** {@link readText} for a body that is no text. */
export async function readBytes(request: Request, maxBytes: number): Promise<Uint8Array> {
  if (Number(request.headers.get("content-length") ?? 0) > maxBytes) throw tooLong(maxBytes);
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  for await (const chunk of bytesOf(request)) {
    sizeBytes += chunk.byteLength;
    if (sizeBytes > maxBytes) throw tooLong(maxBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function* bytesOf(request: Request): AsyncGenerator<Uint8Array> {
  if (request.body === null) return;
  try {
    yield* request.body;
  } catch (error) {
    throw new OsmosisError("VALIDATION", "The request ended before its body did.", {
      hint: "Send the request again.",
      cause: error,
    });
  }
}

function tooLong(maxBytes: number): HTTPException {
  return new HTTPException(413, {
    message: `The request body is longer than the ${maxBytes} bytes that this route takes.`,
  });
}
