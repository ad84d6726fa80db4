import { openAsBlob } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { OsmosisError, errorMessage, type UploadInfo } from "@osmosis/protocol";

export type TransferredPart = { readonly PartNumber: number; readonly ETag: string };

const ATTEMPTS = 5;
const PARALLEL_PARTS = 3;

/**
 * Sends a file to where the platform said: in one piece, or in parts, three at a time. A piece that fails for a reason
 * that may pass is sent again, up to five times; what has arrived is not sent twice.
 *
 * @returns the parts, in order; empty for one piece
 * @throws OsmosisError `NETWORK` or `STORAGE` when a piece could not be sent
 */
export async function sendFile(options: {
  readonly path: string;
  readonly upload: UploadInfo;
  readonly baseUrl: string;
  readonly fetch: typeof fetch;
  readonly signal: AbortSignal;
  readonly onProgress: (sentBytes: number) => void;
}): Promise<readonly TransferredPart[]> {
  const { path, upload, baseUrl, signal, onProgress } = options;
  // A blob of a file knows its size and reads when it is sent; when the file changes meanwhile, reading fails.
  const file = await openAsBlob(path);
  if (upload.method === "simple") {
    await put(new URL(upload.presigned_url, baseUrl), file, {
      ...options,
      headers: upload.upload_headers ?? {},
    });
    onProgress(file.size);
    return [];
  }
  const parts: TransferredPart[] = [];
  const waiting = [...upload.presigned_urls];
  let sent = 0;
  const failed = new AbortController();
  const partSignal = AbortSignal.any([signal, failed.signal]);
  const sendParts = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const start = (next.part_number - 1) * upload.part_size;
      const piece = file.slice(start, start + next.size);
      const url = new URL(next.presigned_url, baseUrl);
      const etag = await put(url, piece, { fetch: options.fetch, signal: partSignal, headers: {} });
      parts.push({ PartNumber: next.part_number, ETag: etag });
      sent += piece.size;
      onProgress(sent);
    }
  };
  try {
    await Promise.all(Array.from({ length: PARALLEL_PARTS }, sendParts));
  } catch (error) {
    // The other senders must not go on for an upload that is given up.
    failed.abort(error);
    throw error;
  }
  return parts.toSorted((a, b) => a.PartNumber - b.PartNumber);
}

async function put(
  url: URL,
  body: Blob,
  options: {
    readonly fetch: typeof fetch;
    readonly signal: AbortSignal;
    readonly headers: Readonly<Record<string, string>>;
  },
): Promise<string> {
  const { signal, headers } = options;
  for (let attempt = 1; ; attempt++) {
    let failure: OsmosisError;
    let mayPass = true;
    try {
      const response = await options.fetch(url, { method: "PUT", body, headers, signal, redirect: "error" });
      const text = await response.text();
      if (response.ok) return response.headers.get("etag") ?? "";
      mayPass = response.status >= 500 || response.status === 429 || response.status === 408;
      const isFull = response.status === 507;
      failure = new OsmosisError(
        isFull ? "STORAGE" : "PLATFORM_ERROR",
        `The upload was refused: HTTP ${response.status} ${saidIn(text)}`.trimEnd(),
        isFull ? { hint: "The platform's storage is full: free some space there." } : {},
      );
      if (isFull) mayPass = false;
    } catch (error) {
      if (signal.aborted) throw error;
      if (error instanceof DOMException && error.name === "NotReadableError") {
        throw new OsmosisError("VALIDATION", "The file changed while it was being uploaded.", {
          hint: "Wait until it is complete, and upload it again.",
          cause: error,
        });
      }
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      failure = new OsmosisError("NETWORK", `The upload broke off: ${errorMessage(cause)}.`, {
        hint: "Nothing was changed on the platform; run the command again.",
        cause: error,
      });
    }
    if (!mayPass || attempt === ATTEMPTS) throw failure;
    await delay(250 * 2 ** attempt, undefined, { signal });
  }
}

function saidIn(text: string): string {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === "object" && body !== null && "error" in body) return String(body.error);
  } catch {
    // Object stores answer in XML, with signed addresses in it: nothing to show.
  }
  return "";
}
