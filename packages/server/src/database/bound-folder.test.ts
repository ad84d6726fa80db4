import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startTestServer } from "../testing.ts";
import { createPostgresDatabase } from "./testing.ts";

test.skipIf(process.env["OSMOSIS_TEST_DATABASE_URL"] === "none")(
  "a second server on a database is refused, beside the first and after it, unless it has the first one's folder",
  async () => {
    await using opened = await createPostgresDatabase();
    const database = { kind: "url", url: opened.url } as const;
    const folder = await mkdtemp(join(tmpdir(), "osmosis-bound-"));
    const data = join(folder, "data");
    try {
      const refused = expect.objectContaining({
        code: "CONFLICT",
        message: expect.stringContaining(`belongs to the platform whose data folder is ${data} on `),
        hint: expect.stringContaining("a database of its own"),
      });
      {
        await using _first = await startTestServer({ database, config: { dataFolder: data } });
        await expect(startTestServer({ database })).rejects.toEqual(refused);
      }
      await expect(startTestServer({ database })).rejects.toEqual(refused);
      const moved = join(folder, "moved");
      await cp(data, moved, { recursive: true });
      await using _again = await startTestServer({ database, config: { dataFolder: moved } });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
);
