import { OsmosisError } from "@osmosis/protocol";
import { HTTPException } from "hono/http-exception";

/** How slowly a body may come: so many bytes a second on average, after a while in which it need not come at all. */
export interface Pace {
  readonly graceMs: number;
  readonly bytesPerSecond: number;
}

/** Slower than any line that somebody works with; whoever sends a byte now and then would hold a connection for ever. */
const SLOWEST: Pace = { graceMs: 30_000, bytesPerSecond: 1024 };

/**
 * The text of a request's body.
 *
 * @throws {HTTPException} 413 when it is longer than `maxBytes`, as soon as that is known; 408 when it comes too slowly.
 * @throws {OsmosisError} VALIDATION when it is not UTF-8, or ends before its announced end.
 */
export async function readText(
  request: Request,
  maxBytes: number,
  pace: Pace | null = SLOWEST,
): Promise<string> {
  const bytes = await readBytes(request, maxBytes, pace);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new OsmosisError("VALIDATION", "The request body is not UTF-8.", { hint: "Send JSON in UTF-8." });
  }
}

/** {@link readText} for a body that is no text. Without a pace it may take as long as it takes. */
export async function readBytes(
  request: Request,
  maxBytes: number,
  pace: Pace | null = SLOWEST,
): Promise<Uint8Array> {
  if (Number(request.headers.get("content-length") ?? 0) > maxBytes) throw tooLong(maxBytes);
  if (request.body === null) return new Uint8Array();
  const begun = performance.now();
  const reader = request.body.getReader();
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  try {
    for (;;) {
      const dueMs = pace === null ? undefined : pace.graceMs + (sizeBytes / pace.bytesPerSecond) * 1000;
      const chunk = await next(reader, dueMs === undefined ? undefined : begun + dueMs - performance.now());
      if (chunk === undefined) return Buffer.concat(chunks);
      sizeBytes += chunk.byteLength;
      if (sizeBytes > maxBytes) throw tooLong(maxBytes);
      chunks.push(chunk);
    }
  } catch (error) {
    // Nobody reads the rest. That the sender is gone is told already.
    reader.cancel().catch(() => {});
    throw error;
  }
}

/** The next part of a body, or undefined behind its end; 408 when it has not come within `waitMs`. */
async function next(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  waitMs: number | undefined,
): Promise<Uint8Array | undefined> {
  const late = Promise.withResolvers<never>();
  const timer =
    waitMs === undefined
      ? undefined
      : setTimeout(
          () => late.reject(new HTTPException(408, { message: "The request body comes too slowly." })),
          Math.max(0, waitMs),
        );
  try {
    const { value } = await Promise.race([reader.read(), late.promise]);
    return value;
  } catch (error) {
    if (error instanceof HTTPException) throw error;
    throw new OsmosisError("VALIDATION", "The request ended before its body did.", {
      hint: "Send the request again.",
      cause: error,
    });
  } finally {
    clearTimeout(timer);
  }
}

function tooLong(maxBytes: number): HTTPException {
  return new HTTPException(413, {
    message: `The request body is longer than the ${maxBytes} bytes that this route takes.`,
  });
}
