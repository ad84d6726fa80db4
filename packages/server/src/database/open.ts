import { existsSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { PGlite } from "@electric-sql/pglite";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import { Kysely, PGliteDialect, PostgresDialect } from "kysely";
import { Pool, types, type QueryResult } from "pg";
import { fromPglite, type Db } from "pg-boss";
import { prepareDataFolder } from "./data-folder.ts";
import { lockFolder } from "./folder-lock.ts";
import { migrate } from "./migrate.ts";
import type { Tables } from "./tables.ts";

/**
 * Where the rows live. `folder`: an embedded Postgres in that folder, one process only. `url`: a Postgres server, for any
 * number of processes; a platform binds it to its data folder (`bound-folder.ts`). `memory`: an embedded Postgres that is
 * gone when it is closed, for tests; a snapshot of an empty one spares making it.
 */
export type DatabaseLocation =
  | { kind: "folder"; folder: string }
  | { kind: "url"; url: string }
  | { kind: "memory"; snapshot?: Blob };

/** An open, migrated database. */
export interface Database extends AsyncDisposable {
  readonly kind: "pglite" | "postgres";
  /**
   * Typed queries. The embedded database has one connection: inside `db.transaction()` use the transaction that you
   * are given, and never wait for the outer `db` there, because it waits for you.
   */
  readonly db: Kysely<Tables>;
  /** Resolves if the embedded database trapped: nothing works from then on, and a new process recovers everything. */
  readonly broken: Promise<OsmosisError>;
  /** The connection in the form that the queue takes. */
  readonly queueConnection: Db;
}

/**
 * Opens a database and brings its schema up to date.
 *
 * @throws {OsmosisError} STORAGE when it cannot be opened or written; CONFLICT when another process holds the folder.
 */
export async function openDatabase(location: DatabaseLocation): Promise<Database> {
  switch (location.kind) {
    case "folder":
      return await openFolder(location.folder);
    case "memory":
      return await openEmbedded(await createInMemory(location.snapshot), []);
    case "url":
      return await openServer(location.url);
  }
}

async function openFolder(folder: string): Promise<Database> {
  await prepareDataFolder(folder);
  await using stack = new AsyncDisposableStack();
  const lock = stack.use(await lockFolder(folder));
  const dataFolder = join(folder, "database");
  try {
    await createCluster(dataFolder);
    const database = await openEmbedded(await PGlite.create(dataFolder), [lock]);
    stack.move();
    return database;
  } catch (error) {
    // A full disk shows up here as anything at all; ask the disk itself.
    await prepareDataFolder(folder);
    throw new OsmosisError(
      "STORAGE",
      `The database in ${dataFolder} cannot be opened: ${errorMessage(error)}`,
      {
        hint: `Restore ${dataFolder} from a backup, or move it away to start with an empty database.`,
        cause: error,
      },
    );
  }
}

/** Makes an empty database aside and moves it into place, so one that a crash left half made is never opened. */
async function createCluster(dataFolder: string): Promise<void> {
  const aside = `${dataFolder}.incoming`;
  await rm(aside, { recursive: true, force: true });
  if (existsSync(dataFolder)) return;
  try {
    const cluster = await PGlite.create(aside);
    await cluster.close();
    await rename(aside, dataFolder);
  } catch (error) {
    await rm(aside, { recursive: true, force: true });
    throw error;
  }
}

async function createInMemory(snapshot: Blob | undefined): Promise<PGlite> {
  return await PGlite.create(snapshot === undefined ? {} : { loadDataDir: snapshot });
}

async function openEmbedded(pglite: PGlite, held: readonly AsyncDisposable[]): Promise<Database> {
  const broken = Promise.withResolvers<OsmosisError>();
  const db = new Kysely<Tables>({
    dialect: new PGliteDialect({ pglite }),
    log(event) {
      if (event.level === "error" && event.error instanceof WebAssembly.RuntimeError) {
        broken.resolve(brokenDatabase(event.error));
      }
    },
  });
  try {
    await migrate(db);
  } catch (error) {
    await pglite.close();
    throw error;
  }
  return {
    kind: "pglite",
    db,
    broken: broken.promise,
    queueConnection: fromPglite(pglite),
    async [Symbol.asyncDispose]() {
      await db.destroy();
      for (const resource of held) await resource[Symbol.asyncDispose]();
    },
  };
}

function brokenDatabase(cause: WebAssembly.RuntimeError): OsmosisError {
  return new OsmosisError("STORAGE", `The embedded database stopped working: ${cause.message}`, {
    hint: "Start the server again: what was acknowledged is in the journal. If this repeats, look at the free space.",
    cause,
  });
}

async function openServer(url: string): Promise<Database> {
  const pool = new Pool({ connectionString: url, max: 10, types: { getTypeParser: parserOf } });
  // A connection that breaks while idle is replaced by the pool; without a listener it would end the process.
  pool.on("error", () => {});
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
  try {
    await migrate(db);
  } catch (error) {
    await pool.end();
    throw new OsmosisError("STORAGE", `The database server cannot be used: ${errorMessage(error)}`, {
      hint: "Check that the server in DATABASE_URL answers and that its user may create tables.",
      cause: error,
    });
  }
  return {
    kind: "postgres",
    db,
    // Connections break, and the pool makes others.
    broken: new Promise(() => {}),
    queueConnection: {
      async executeSql(text, values) {
        const result: unknown = await pool.query(text, values);
        // Several statements in one text give one result each; the queue wants all rows.
        const results = Array.isArray(result) ? result : [result];
        return { rows: results.flatMap((one: QueryResult) => one.rows) };
      },
    },
    async [Symbol.asyncDispose]() {
      await db.destroy();
    },
  };
}

const INT8_OID = 20;

/** 64-bit integers as numbers, as the embedded database gives them: no count here exceeds 2^53. */
function parserOf(oid: number, format: "text" | "binary" = "text"): (value: string) => unknown {
  if (oid === INT8_OID && format === "text") return Number;
  // oxlint-disable-next-line typescript/no-unsafe-enum-assignment -- the driver's table answers for any type number
  return types.getTypeParser(oid, "text");
}
