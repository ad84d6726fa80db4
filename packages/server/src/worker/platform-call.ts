import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { OsmosisError, errorMessage } from "@osmosis/protocol";

/** The lease of a run or a share is gone: another worker has it, or it has ended. Whatever is under way must stop. */
export class LeaseLost extends Error {
  override readonly name = "LeaseLost";
}

/** What the platform refuses for a conflict, it refuses because the lease is gone. */
export async function leased<Result>(call: Promise<Result>): Promise<Result> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof OsmosisError && error.code === "CONFLICT") {
      throw new LeaseLost(error.message, { cause: error });
    }
    throw error;
  }
}

/** @throws OsmosisError `NETWORK` when the connection breaks. */
export async function* chunksOf(body: ReadableStream<Uint8Array>, path: string): AsyncGenerator<Buffer> {
  const reader = body.getReader();
  try {
    for (;;) {
      const chunk = await reader.read().catch((error: unknown) => {
        throw new OsmosisError("NETWORK", `${path} broke off: ${errorMessage(error)}.`, { cause: error });
      });
      if (chunk.done) return;
      const { buffer, byteOffset, byteLength } = chunk.value;
      // The reader of archives takes nothing but buffers.
      yield Buffer.from(buffer, byteOffset, byteLength);
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** The lines that are not empty. */
export async function* linesOf(body: Readable): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of body) {
    // A byte stream.
    const lines = (rest + decoder.decode(chunk as Uint8Array, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    yield* lines.filter((line) => line !== "");
  }
  if (rest !== "") yield rest;
}

/** Fetches, and speaks the errors of the typed client. */
export async function reach(
  fetch: typeof globalThis.fetch,
  url: URL,
  init: RequestInit & { duplex?: "half" },
): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { ...init, redirect: "manual" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new OsmosisError("NETWORK", `No answer from ${url.origin}: ${errorMessage(error)}.`, {
      cause: error,
    });
  }
  if (response.ok) return response;
  const text = await response.text();
  const code = response.status === 409 ? "CONFLICT" : response.status >= 500 ? "NETWORK" : "PLATFORM_ERROR";
  throw new OsmosisError(code, `${url.pathname} answered ${response.status}: ${text.slice(0, 500)}`);
}

/** Repeats a call while the platform is away, with a growing pause, until the patience is used up. */
export async function patiently<Result>(
  options: { readonly signal: AbortSignal; readonly patienceMs: number },
  call: () => Promise<Result>,
): Promise<Result> {
  let waitedMs = 0;
  for (let pauseMs = 100; ; pauseMs = Math.min(pauseMs * 2, 5000)) {
    try {
      return await call();
    } catch (error) {
      options.signal.throwIfAborted();
      const away = error instanceof OsmosisError && (error.code === "NETWORK" || isServerFault(error));
      if (!away || waitedMs >= options.patienceMs) throw error;
      await sleep(pauseMs, undefined, { signal: options.signal });
      waitedMs += pauseMs;
    }
  }
}

function isServerFault(error: OsmosisError): boolean {
  const status = error.details?.["status_code"];
  return typeof status === "number" && status >= 500;
}
