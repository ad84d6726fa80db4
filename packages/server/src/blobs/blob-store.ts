/** A stored blob without its bytes. */
export interface BlobInfo {
  key: string;
  sizeBytes: number;
  modifiedAt: Date;
}

/** What writing a blob found out about it. */
export interface StoredBlob {
  sizeBytes: number;
  /** SHA-256 of the bytes in hex. */
  sha256: string;
}

/** Bytes `start` up to and including `end`, as in HTTP. Without `end`: up to the last byte. */
export interface ByteRange {
  start: number;
  end?: number;
}

export type BlobBody = Uint8Array | ReadableStream<Uint8Array>;

/**
 * Heavy bodies by key. A key is a path of one or more segments; see {@link checkBlobKey}. A blob appears whole or not
 * at all, replaces the former one of its key, and is durable when `put` returns.
 */
export interface BlobStore {
  /**
   * Stores a body.
   *
   * @throws {OsmosisError} VALIDATION when the body is longer than `maxBytes`; STORAGE when the place is full or
   * read-only. In both cases nothing is stored.
   */
  put(
    key: string,
    body: BlobBody,
    options?: { maxBytes?: number; signal?: AbortSignal },
  ): Promise<StoredBlob>;
  /** Stores the bodies of other blobs one after the other as one blob; they stay. NOT_FOUND when one is missing. */
  compose(key: string, partKeys: readonly string[]): Promise<StoredBlob>;
  /** The body, or the part of it in `range` (cut to the blob's size). `undefined` when there is no such blob. */
  get(
    key: string,
    range?: ByteRange,
  ): Promise<{ info: BlobInfo; body: ReadableStream<Uint8Array> } | undefined>;
  stat(key: string): Promise<BlobInfo | undefined>;
  /** Deletes a blob; fine when there is none. */
  delete(key: string): Promise<void>;
  /** The blobs below `prefix` (whole segments: `runs/1` does not list `runs/10/a`), ordered by key. */
  list(prefix: string): AsyncIterable<BlobInfo>;
}
