import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { BlobStore, ByteRange } from "./blob-store.ts";
import { openFolderStore } from "./folder-store.ts";

/** What every store promises. */
function conformance(name: string, open: () => Promise<BlobStore & { close(): Promise<void> }>): void {
  describe(name, () => {
    let store: Awaited<ReturnType<typeof open>>;
    beforeAll(async () => {
      store = await open();
    });
    afterAll(() => store.close());

    const read = async (key: string, range?: ByteRange) => {
      const found = await store.get(key, range);
      return found === undefined ? undefined : await new Response(found.body).text();
    };
    const keys = async (prefix: string) => {
      const found = [];
      for await (const info of store.list(prefix)) found.push(info.key);
      return found;
    };

    test("gives back what was put, from bytes and from a stream", async () => {
      expect(await store.put("plain", bytes("hello"))).toEqual({
        sizeBytes: 5,
        sha256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
      });
      const stream = new Blob([new Uint8Array(300_000).fill(7), "end"]).stream();
      expect(await store.put("streamed", stream)).toMatchObject({ sizeBytes: 300_003 });
      expect(await read("plain")).toBe("hello");
      expect((await read("streamed"))?.endsWith("end")).toBe(true);
      expect(await store.stat("plain")).toEqual({ key: "plain", sizeBytes: 5, modifiedAt: expect.any(Date) });
    });

    test("gives ranges, cut to the size", async () => {
      await store.put("ranged", bytes("0123456789"));
      expect(await read("ranged", { start: 2, end: 4 })).toBe("234");
      expect(await read("ranged", { start: 8 })).toBe("89");
      expect(await read("ranged", { start: 8, end: 100 })).toBe("89");
      expect(await read("ranged", { start: 10 })).toBe("");
    });

    test("replaces and deletes; what is not there is undefined", async () => {
      await store.put("twice", bytes("one"));
      await store.put("twice", bytes("two"));
      expect(await read("twice")).toBe("two");
      await store.delete("twice");
      await store.delete("twice");
      expect(await read("twice")).toBeUndefined();
      expect(await store.stat("twice")).toBeUndefined();
    });

    test("lists what is below a prefix in order, and keeps a key beside the keys below it", async () => {
      for (const key of ["l/b", "l/a", "l/a/x", "l/a/y~", "l/50%", "la"]) await store.put(key, bytes(key));
      expect(await keys("l")).toEqual(["l/50%", "l/a", "l/a/x", "l/a/y~", "l/b"]);
      expect(await keys("l/a")).toEqual(["l/a/x", "l/a/y~"]);
      expect(await keys("nothing")).toEqual([]);
      expect(await read("l/a")).toBe("l/a");
      expect(await read("l/a/y~")).toBe("l/a/y~");
    });

    test("composes parts, which stay, and names the part that is missing", async () => {
      await store.put("parts/1", bytes("ab"));
      await store.put("parts/2", bytes("cd"));
      expect(await store.compose("whole", ["parts/1", "parts/2"])).toMatchObject({ sizeBytes: 4 });
      expect(await read("whole")).toBe("abcd");
      expect(await keys("parts")).toEqual(["parts/1", "parts/2"]);
      await expect(store.compose("whole", ["parts/1", "parts/3"])).rejects.toMatchObject({
        code: "NOT_FOUND",
      });
      expect(await read("whole")).toBe("abcd");
    });

    test("a body that is too long, or breaks, leaves what was there", async () => {
      await store.put("kept", bytes("old"));
      await expect(store.put("kept", bytes("too long"), { maxBytes: 7 })).rejects.toMatchObject({
        code: "VALIDATION",
      });
      const broken = new ReadableStream<Uint8Array>({
        pull(controller) {
          controller.enqueue(bytes("half"));
          controller.error(new Error("cut"));
        },
      });
      await expect(store.put("kept", broken)).rejects.toThrow("cut");
      await expect(store.put("kept", bytes("x"), { signal: AbortSignal.abort() })).rejects.toThrow();
      expect(await read("kept")).toBe("old");
    });

    test("refuses keys that are no safe paths", async () => {
      for (const key of ["", "/a", "a/", "a//b", "..", "a/../b", ".", "a\\b", "a\0b", "x".repeat(201)]) {
        await expect((async () => await store.put(key, bytes("")))()).rejects.toMatchObject({
          code: "VALIDATION",
        });
      }
    });
  });
}

conformance("the folder store", async () => {
  const folder = await mkdtemp(join(tmpdir(), "osmosis-blobs-"));
  return {
    ...openFolderStore(folder),
    async close() {
      expect(await readdir(join(folder, "incoming"))).toEqual([]);
      await rm(folder, { recursive: true, force: true });
    },
  };
});

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}
