import { promisify } from "node:util";
import { zstdDecompress } from "node:zlib";
import { OsmosisError, TINKER_PROTOBUF, decodeForwardBackward } from "@osmosis/protocol";
import type { Context } from "hono";
import { HTTPException } from "hono/http-exception";
import type { AppEnv } from "../../http/context.ts";
import { refuseDeepNesting } from "../../http/nesting.ts";
import { readBytes } from "../../http/read-text.ts";

/** What a client may send at once, before and after unpacking; it is told to cut its data at 5 MB. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

const decompress = promisify(zstdDecompress);

/**
 * The body of a request of the wire: JSON or protocol buffers, either of them compressed with zstd or not.
 *
 * @throws {OsmosisError} VALIDATION for what is none of these.
 * @throws {HTTPException} 413 for too long a body, as soon as that is known: nothing is unpacked beyond the limit.
 */
export async function readWireBody(c: Context<AppEnv>): Promise<unknown> {
  const encoding = c.req.header("content-encoding")?.toLowerCase() ?? "identity";
  if (encoding !== "identity" && encoding !== "zstd") {
    throw new OsmosisError("VALIDATION", `The content encoding ${encoding} is not supported; zstd is.`);
  }
  const sent = await readBytes(c.req.raw, MAX_BODY_BYTES);
  const bytes = encoding === "zstd" ? await decompressed(sent) : sent;
  if (c.req.header("content-type")?.includes(TINKER_PROTOBUF) === true) return decodeForwardBackward(bytes);
  if (bytes.length === 0) return {};
  const json = parseJson(bytes);
  refuseDeepNesting(json);
  return json;
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new OsmosisError("VALIDATION", "The request body is not JSON.");
  }
}

async function decompressed(bytes: Uint8Array): Promise<Uint8Array> {
  try {
    return await decompress(bytes, { maxOutputLength: MAX_BODY_BYTES });
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ERR_BUFFER_TOO_LARGE") {
      throw new HTTPException(413, {
        message: `The request body unpacks to more than the ${MAX_BODY_BYTES} bytes that this route takes.`,
      });
    }
    throw new OsmosisError("VALIDATION", "The request body is not zstd.", { cause: error });
  }
}
