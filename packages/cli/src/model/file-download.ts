import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, rename, rm, stat, truncate } from "node:fs/promises";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { errorMessage, OsmosisError } from "@osmosis/protocol";
import { makeFolder } from "../output/target-folder.ts";

/** A file of a hub or of the platform. */
export type RemoteFile = {
  /** Where it lies; it may redirect to elsewhere. Asked before each attempt, since some addresses expire. */
  readonly locate: () => URL | Promise<URL>;
  /** What people call it. */
  readonly name: string;
  /** What is known of it beforehand; a hub tells with its answer. */
  readonly sha256?: string;
  readonly sizeBytes?: number;
  /** What an answer that is no success means. */
  readonly refusal: (status: number, name: string) => OsmosisError;
};

export type Download = {
  readonly fetch: typeof fetch;
  readonly signal: AbortSignal;
  /** Sent to the file's own origin only. */
  readonly token: string | undefined;
  readonly onProgress: (doneBytes: number, totalBytes: number | undefined) => void;
  /** Before the second attempt; doubles with each further one. */
  readonly firstPauseMs?: number;
};

const ATTEMPTS = 6;
const MAX_REDIRECTS = 5;
const MISLED = "Check its address, and whether a proxy is in between; for a hub that is OSMOSIS_HUB_URL.";

/**
 * Downloads a file to `path`. It goes on where an earlier call stopped, and appears whole or not at all: its size, and
 * its SHA-256 where one is known (Git's SHA-1 for small files of a hub), are what was announced.
 * @throws OsmosisError what `refusal` says, `NETWORK`, or `VALIDATION` for bytes that are others than announced.
 */
export async function downloadFile(file: RemoteFile, path: string, download: Download): Promise<void> {
  if ((await sizeOf(path)) !== undefined) {
    if (file.sha256 === undefined || (await sha256Of(path)) === file.sha256) return;
    await rm(path, { force: true });
  }
  await makeFolder(dirname(path));
  let wasDamaged = false;
  for (let attempt = 1; ; attempt++) {
    const before = (await sizeOf(partialOf(path))) ?? 0;
    try {
      await fetchRest(file, path, download);
      return;
    } catch (error) {
      if (download.signal.aborted) throw error;
      const isDamaged = error instanceof OsmosisError && error.code === "VALIDATION";
      // What is damaged was deleted; it gets one more chance from the beginning.
      if (isDamaged && wasDamaged) throw error;
      wasDamaged ||= isDamaged;
      const mayPass = isDamaged || (error instanceof OsmosisError && PASSING.has(error.code));
      if (!mayPass || attempt >= ATTEMPTS) throw error;
      if (((await sizeOf(partialOf(path))) ?? 0) > before) attempt = 0;
      await delay((download.firstPauseMs ?? 500) * 2 ** attempt, undefined, { signal: download.signal });
    }
  }
}

const PASSING: ReadonlySet<string> = new Set(["NETWORK", "RATE_LIMITED", "PLATFORM_ERROR"]);

const partialOf = (path: string): string => `${path}.partial`;

type Announced = {
  readonly response: Response;
  readonly sha256: string | undefined;
  readonly gitSha1: string | undefined;
  readonly linkedSize: number | undefined;
};

async function fetchRest(file: RemoteFile, path: string, download: Download): Promise<void> {
  const partial = partialOf(path);
  const have = (await sizeOf(partial)) ?? 0;
  const { response, ...announced } = await request(file, have, download);
  let start = have;
  if (response.status === 416) {
    // All of it is here already, or more than there is.
    await response.body?.cancel();
  } else if (response.status === 206) {
    const range = /^bytes (\d+)-/.exec(response.headers.get("content-range") ?? "");
    if (range === null || Number(range[1]) !== have) {
      await response.body?.cancel();
      await rm(partial, { force: true });
      throw new OsmosisError("NETWORK", `${file.name}: the server sent another part than was asked for.`, {
        hint: "Run the command again: it begins this file anew.",
      });
    }
  } else {
    start = 0;
    await truncate(partial, 0).catch(() => undefined);
  }
  const total = totalOf(response, announced.linkedSize);
  if (response.status !== 416) await append(file, partial, { response, start, total, download });
  await check(file, partial, { ...announced, total });
  await rename(partial, path);
}

async function append(
  file: RemoteFile,
  partial: string,
  {
    response,
    start,
    total,
    download,
  }: { response: Response; start: number; total: number | undefined; download: Download },
): Promise<void> {
  await using handle = await open(partial, start === 0 ? "w" : "a");
  let done = start;
  download.onProgress(done, total);
  try {
    for await (const chunk of response.body ?? []) {
      await handle.write(chunk);
      done += chunk.length;
      download.onProgress(done, total);
    }
  } catch (error) {
    if (download.signal.aborted) throw error;
    if (isFull(error)) {
      throw new OsmosisError("STORAGE", `${partial} cannot be written: ${errorMessage(error)}.`, {
        hint: "Free some space, and run the command again: it goes on where it stopped.",
        cause: error,
      });
    }
    throw brokenOff(file, error);
  } finally {
    await handle.sync();
  }
}

async function check(
  file: RemoteFile,
  partial: string,
  announced: { sha256: string | undefined; gitSha1: string | undefined; total: number | undefined },
): Promise<void> {
  const size = (await sizeOf(partial)) ?? 0;
  const { sha256, gitSha1, total } = announced;
  if (total !== undefined && size < total) throw brokenOff(file, `${size} of ${total} bytes arrived`);
  const found = {
    size: total === undefined || size === total,
    sha256: sha256 === undefined || (await sha256Of(partial)) === sha256,
    gitSha1:
      gitSha1 === undefined ||
      (await digest(partial, createHash("sha1").update(`blob ${size}\0`))) === gitSha1,
  };
  if (found.size && found.sha256 && found.gitSha1) return;
  await rm(partial, { force: true });
  const what = found.size
    ? "its checksum is not the one that was announced"
    : `it has ${size} of ${total} bytes`;
  throw new OsmosisError("VALIDATION", `${file.name} arrived damaged: ${what}.`, {
    hint: "It was deleted; run the command again. If it happens again, the server's copy is damaged.",
  });
}

/** Follows redirects by hand: checksums are headers of the first answer, and the token stays with the hub. */
async function request(file: RemoteFile, from: number, download: Download): Promise<Announced> {
  const origin = await file.locate();
  let url = origin;
  let sha256 = file.sha256;
  let gitSha1: string | undefined;
  let linkedSize = file.sizeBytes;
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    const isHome = url.origin === origin.origin;
    const response = await download
      .fetch(url, {
        headers: {
          // Compressed bytes could neither be counted nor resumed; with a range, fetch says so itself.
          ...(from > 0 ? { range: `bytes=${from}-` } : { "accept-encoding": "identity" }),
          ...(isHome && download.token !== undefined ? { authorization: `Bearer ${download.token}` } : {}),
        },
        redirect: "manual",
        signal: download.signal,
      })
      .catch((error: unknown) => {
        if (download.signal.aborted) throw error;
        throw brokenOff(file, error instanceof Error && error.cause instanceof Error ? error.cause : error);
      });
    const linked = unquote(response.headers.get("x-linked-etag"));
    const etag = linked ?? (isHome ? unquote(response.headers.get("etag")) : undefined);
    if (etag !== undefined && /^[0-9a-f]{64}$/.test(etag)) sha256 ??= etag;
    if (linked === undefined && etag !== undefined && /^[0-9a-f]{40}$/.test(etag)) gitSha1 ??= etag;
    linkedSize ??= Number(response.headers.get("x-linked-size")) || undefined;
    const location = response.headers.get("location");
    if (response.status >= 300 && response.status < 400 && location !== null) {
      await response.body?.cancel();
      url = new URL(location, url);
      if (url.protocol !== "https:" && url.protocol !== origin.protocol) {
        throw new OsmosisError(
          "NETWORK",
          `${file.name}: the server sent us to ${url.protocol}//, which is not safe.`,
          { hint: MISLED },
        );
      }
      continue;
    }
    if (response.ok || response.status === 416) return { response, sha256, gitSha1, linkedSize };
    await response.body?.cancel();
    throw file.refusal(response.status, file.name);
  }
  throw new OsmosisError("NETWORK", `${file.name}: the server redirects in circles.`, { hint: MISLED });
}

function totalOf(response: Response, linkedSize: number | undefined): number | undefined {
  if (linkedSize !== undefined) return linkedSize;
  const range = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
  if (range !== null) return Number(range[1]);
  const length = response.headers.get("content-length");
  return response.status === 200 && length !== null ? Number(length) : undefined;
}

/** `W/"abc"` and `"abc"` mean abc. */
function unquote(etag: string | null): string | undefined {
  return etag?.replace(/^W\//, "").replaceAll('"', "");
}

export async function sha256Of(path: string): Promise<string> {
  return await digest(path, createHash("sha256"));
}

async function digest(path: string, hash: Hash): Promise<string> {
  // Without an encoding a stream of a file gives buffers.
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

async function sizeOf(path: string): Promise<number | undefined> {
  return (await stat(path).catch(() => undefined))?.size;
}

function isFull(error: unknown): boolean {
  return (
    error instanceof Error &&
    "code" in error &&
    typeof error.code === "string" &&
    /^E(NOSPC|DQUOT|ROFS|FBIG)$/.test(error.code)
  );
}

function brokenOff(file: RemoteFile, error: unknown): OsmosisError {
  return new OsmosisError("NETWORK", `The download of ${file.name} broke off: ${errorMessage(error)}.`, {
    hint: "Run the command again: it goes on where it stopped.",
    cause: error,
  });
}
