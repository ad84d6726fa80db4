import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { jsonb, type Json } from "./columns.ts";
import { migrate } from "./migrate.ts";
import { openDatabase } from "./open.ts";
import { withDatabase, withDatabaseLocation } from "./testing.ts";

withDatabase("the database", (database) => {
  test("gives back what was written, in the same types on both", async () => {
    const { db } = database();
    const value = { list: [1, "a\0b", null], nested: { ok: true } };
    const row = await sql<{ number: number; at: Date; json: unknown }>`
      select 9007199254740991::int8 as number, '2026-01-02T03:04:05.678Z'::timestamptz as at, ${jsonb(value)} as json
    `.execute(db);
    expect(row.rows).toEqual([
      {
        number: 9_007_199_254_740_991,
        at: new Date("2026-01-02T03:04:05.678Z"),
        json: { list: [1, "a\uFFFDb", null], nested: { ok: true } },
      },
    ]);
  });

  test("stores a list as JSON, not as an array of Postgres", async () => {
    const { db } = database();
    const scratch = db.withTables<{ scratch: { items: Json<string[]> } }>();
    await sql`create temporary table scratch (items jsonb not null)`.execute(db);
    if (database().kind === "pglite")
      await scratch
        .insertInto("scratch")
        .values({ items: jsonb(["a"]) })
        .execute();
    const { rows } = await sql<{ items: string[] }>`select ${jsonb(["a", "b"])} as items`.execute(db);
    expect(rows).toEqual([{ items: ["a", "b"] }]);
  });

  test("a transaction that throws leaves nothing", async () => {
    const { db } = database();
    const attempt = db.transaction().execute(async (trx) => {
      await trx
        .insertInto("users")
        .values({ id: "u1", name: "U", email: "u@example.com", email_verified: true })
        .execute();
      throw new Error("stop");
    });
    await expect(attempt).rejects.toThrow("stop");
    expect(await db.selectFrom("users").select("id").where("id", "=", "u1").execute()).toEqual([]);
  });

  test("migrating again changes nothing", async () => {
    await migrate(database().db);
  });
});

withDatabaseLocation("opening", (locate) => {
  test("several at once migrate once", async () => {
    const location = locate();
    const openings = location.kind === "memory" ? [location] : [location, location, location];
    const databases = await Promise.all(openings.map((one) => openDatabase(one)));
    for (const database of databases) {
      await using held = database;
      expect(await held.db.selectFrom("workspaces").select("id").execute()).toEqual([]);
    }
  });
});

describe("a data folder", { timeout: 120_000 }, () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "osmosis-database-"));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test("keeps every acknowledged row when its process is killed, and the lock of the dead does not hold", async () => {
    const place = join(folder, "killed");
    const child = spawn(process.execPath, ["--input-type=module", "--eval", WRITER, place], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let acknowledged = 0;
    for await (const line of createInterface(child.stdout)) {
      acknowledged = Number(line);
      if (acknowledged === 25) child.kill("SIGKILL");
    }
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    expect(child.signalCode).toBe("SIGKILL");
    await using database = await openDatabase({ kind: "folder", folder: place });
    const rows = await database.db.selectFrom("users").select("id").execute();
    expect(acknowledged).toBeGreaterThanOrEqual(25);
    expect(rows.length).toBeGreaterThanOrEqual(acknowledged);

    const second = openDatabase({ kind: "folder", folder: place });
    await expect(second).rejects.toMatchObject({
      code: "CONFLICT",
      message: `The data folder ${place} is in use by process ${process.pid}.`,
    });
  });

  test("that cannot be made is a STORAGE error with the folder and the remedy", async () => {
    const file = join(folder, "file");
    await writeFile(file, "");
    await expect(openDatabase({ kind: "folder", folder: join(file, "data") })).rejects.toMatchObject({
      code: "STORAGE",
      message: expect.stringContaining(join(file, "data")),
      hint: "A part of this path is not a folder: choose another folder with --data.",
    });
  });

  test("whose database is damaged is a STORAGE error that says what to do", async () => {
    const place = join(folder, "damaged");
    await (await openDatabase({ kind: "folder", folder: place }))[Symbol.asyncDispose]();
    await writeFile(join(place, "database/global/pg_control"), "nonsense");
    await expect(openDatabase({ kind: "folder", folder: place })).rejects.toMatchObject({
      code: "STORAGE",
      hint: expect.stringContaining("from a backup"),
    });
  });
});

test("a database server that does not answer is a STORAGE error", async () => {
  await expect(
    openDatabase({ kind: "url", url: "postgres://nobody@127.0.0.1:1/none" }),
  ).rejects.toMatchObject({
    code: "STORAGE",
    hint: "Check that the server in DATABASE_URL answers and that its user may create tables.",
  });
});

/** Inserts rows one by one, and says after each how many there are. */
const WRITER = `
  import { openDatabase } from ${JSON.stringify(import.meta.resolve("./open.ts"))};
  const database = await openDatabase({ kind: "folder", folder: process.argv[1] });
  for (let count = 1; ; count += 1) {
    const row = { id: "u" + count, name: "U", email: count + "@example.com", email_verified: true };
    await database.db.insertInto("users").values(row).execute();
    process.stdout.write(count + "\\n");
  }
`;
