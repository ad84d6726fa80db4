import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { chown, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PGlite } from "@electric-sql/pglite";
import { Client } from "pg";
import { afterAll, beforeAll, describe } from "vitest";
import manifest from "../../package.json" with { type: "json" };
import { openDatabase, type Database, type DatabaseLocation } from "./open.ts";

/**
 * Runs a suite once on the embedded database and once on a Postgres server, in a database of its own that is dropped
 * afterwards. `locate()` tells a test where; it works from `beforeAll` on.
 *
 * The server is `OSMOSIS_TEST_DATABASE_URL`, or one that answers on 127.0.0.1:5432, or one that is started for this
 * suite from the binaries of Debian's package. Without any of them the suite on Postgres fails and says so; set
 * `OSMOSIS_TEST_DATABASE_URL=none` to leave it out on purpose.
 */
export function withDatabaseLocation(name: string, suite: (locate: () => DatabaseLocation) => void): void {
  describe(`${name} on PGlite`, () => {
    let location: DatabaseLocation | undefined;
    beforeAll(async () => {
      location = await memoryDatabase();
    });
    suite(() => location ?? tooEarly());
  });
  describe.skipIf(process.env["OSMOSIS_TEST_DATABASE_URL"] === "none")(`${name} on Postgres`, () => {
    let opened: (AsyncDisposable & { url: string }) | undefined;
    beforeAll(async () => {
      opened = await createPostgresDatabase();
    });
    afterAll(async () => {
      await opened?.[Symbol.asyncDispose]();
    });
    suite(() => {
      const { url } = opened ?? tooEarly();
      return { kind: "url", url };
    });
  });
}

/** {@link withDatabaseLocation} with the database open: the suite's tests share it. */
export function withDatabase(name: string, suite: (database: () => Database) => void): void {
  withDatabaseLocation(name, (locate) => {
    let database: Database | undefined;
    beforeAll(async () => {
      database = await openDatabase(locate());
    });
    afterAll(async () => {
      await database?.[Symbol.asyncDispose]();
    });
    suite(() => database ?? tooEarly());
  });
}

/** An embedded database in memory, made from a snapshot that the first test of this machine leaves behind. */
export async function memoryDatabase(): Promise<DatabaseLocation> {
  const file = join(tmpdir(), `osmosis-test-pglite-${manifest.dependencies["@electric-sql/pglite"]}.tar`);
  const kept = await readFile(file).catch(() => undefined);
  if (kept !== undefined) return { kind: "memory", snapshot: new Blob([kept]) };
  await using database = await PGlite.create();
  const snapshot = await database.dumpDataDir("none");
  const aside = `${file}.${randomBytes(6).toString("hex")}`;
  await writeFile(aside, new Uint8Array(await snapshot.arrayBuffer()));
  await rename(aside, file);
  return { kind: "memory", snapshot };
}

function tooEarly(): never {
  throw new Error("The test database is there from beforeAll on.");
}

/** A database of its own on a Postgres server, found or started as {@link withDatabaseLocation} says. */
export async function createPostgresDatabase(): Promise<AsyncDisposable & { url: string }> {
  await using stack = new AsyncDisposableStack();
  const server = stack.use(await findServer());
  const name = `osmosis_test_${randomBytes(6).toString("hex")}`;
  await runSql(server.url, `create database ${name}`);
  stack.defer(() => runSql(server.url, `drop database if exists ${name} with (force)`));
  const url = new URL(server.url);
  url.pathname = `/${name}`;
  const held = stack.move();
  return { url: url.toString(), [Symbol.asyncDispose]: () => held.disposeAsync() };
}

async function findServer(): Promise<AsyncDisposable & { url: string }> {
  const given = process.env["OSMOSIS_TEST_DATABASE_URL"];
  const url = given ?? "postgres://postgres@127.0.0.1:5432/test";
  try {
    await runSql(url, "select 1");
    return { url, async [Symbol.asyncDispose]() {} };
  } catch (error) {
    if (given !== undefined) throw error;
  }
  return await startServer();
}

async function startServer(): Promise<AsyncDisposable & { url: string }> {
  const binaries = findBinaries();
  if (binaries === undefined) {
    throw new Error(
      "The tests on Postgres need a server: none answers on 127.0.0.1:5432, and no binaries are in /usr/lib/postgresql. " +
        "Set OSMOSIS_TEST_DATABASE_URL to a server, or to `none` to leave these tests out.",
    );
  }
  const folder = await mkdtemp(join(tmpdir(), "osmosis-postgres-"));
  const port = await freePort();
  const user = postgresUser();
  if (user.uid !== undefined) await chown(folder, user.uid, user.gid);
  const initdb = join(binaries, "initdb");
  const made = spawnSync(initdb, ["-D", folder, "-U", "postgres", "-A", "trust"], {
    encoding: "utf8",
    ...user,
  });
  if (made.status !== 0) throw new Error(`initdb failed: ${made.stderr}`);
  const settings = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"];
  const place = ["-D", folder, "-p", String(port), "-k", folder];
  const child = spawn(join(binaries, "postgres"), [...place, ...settings], { stdio: "ignore", ...user });
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  await untilAnswers(url);
  return {
    url,
    async [Symbol.asyncDispose]() {
      const exited = new Promise((resolve) => child.once("exit", resolve));
      // An immediate shutdown: the data is thrown away.
      child.kill("SIGQUIT");
      await exited;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Postgres refuses to run as root; its package brings the user `postgres`. */
function postgresUser(): { uid: number; gid: number } | { uid?: undefined } {
  if (process.getuid?.() !== 0) return {};
  const [uid, gid] = ["-u", "-g"].map((flag) =>
    Number(spawnSync("id", [flag, "postgres"]).stdout.toString()),
  );
  return uid === undefined || gid === undefined ? {} : { uid, gid };
}

async function untilAnswers(url: string): Promise<void> {
  for (let attempt = 0; attempt < 100; attempt += 1) {
    try {
      return await runSql(url, "select 1");
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  await runSql(url, "select 1");
}

function findBinaries(): string | undefined {
  const root = "/usr/lib/postgresql";
  if (!existsSync(root)) return undefined;
  return readdirSync(root)
    .map((version) => join(root, version, "bin"))
    .find((folder) => existsSync(join(folder, "postgres")));
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("No free port.");
  return address.port;
}

async function runSql(url: string, text: string): Promise<void> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 5000 });
  client.on("error", () => {});
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}
