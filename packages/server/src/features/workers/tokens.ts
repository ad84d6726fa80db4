import { randomBytes, randomUUID } from "node:crypto";
import { OsmosisError, type WorkerToken } from "@osmosis/protocol";
import type { Selectable } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import { hashSecret } from "../accounts/tokens.ts";

type Parts = Pick<Platform, "db" | "now">;

/** Makes a token: `osw_` and 32 random bytes, of which a hash is stored. It has no end; it can be revoked. */
export async function createWorkerToken(
  { db, now }: Parts,
  { name, createdBy }: { readonly name: string; readonly createdBy: string },
): Promise<WorkerToken & { token: string }> {
  const token = `osw_${randomBytes(32).toString("base64url")}`;
  const row = await db
    .insertInto("worker_tokens")
    .values({
      id: randomUUID(),
      name,
      token_hash: hashSecret(token),
      prefix: token.slice(0, 10),
      created_by: createdBy,
      created_at: now(),
    })
    .returningAll()
    .executeTakeFirstOrThrow();
  return { ...answerOf(row), token };
}

/** The tokens that work, newest first. */
export async function listWorkerTokens({ db }: Parts): Promise<WorkerToken[]> {
  const rows = await db
    .selectFrom("worker_tokens")
    .selectAll()
    .where("revoked_at", "is", null)
    .orderBy("created_at", "desc")
    .execute();
  return rows.map(answerOf);
}

/** @throws {OsmosisError} NOT_FOUND. */
export async function revokeWorkerToken({ db, now }: Parts, id: string): Promise<WorkerToken> {
  const row = await db
    .updateTable("worker_tokens")
    .set({ revoked_at: now() })
    .where("id", "=", id)
    .where("revoked_at", "is", null)
    .returningAll()
    .executeTakeFirst();
  if (row !== undefined) return answerOf(row);
  throw new OsmosisError("NOT_FOUND", "There is no such worker token.", {
    hint: "`osmosis worker token list` shows those that work.",
  });
}

/** Whether a token works. Its use is noted, once a minute. */
export async function isWorkerToken({ db, now }: Parts, token: string): Promise<boolean> {
  if (!token.startsWith("osw_")) return false;
  const row = await db
    .selectFrom("worker_tokens")
    .select(["id", "last_used_at"])
    .where("token_hash", "=", hashSecret(token))
    .where("revoked_at", "is", null)
    .executeTakeFirst();
  if (row === undefined) return false;
  if (row.last_used_at === null || now().getTime() - row.last_used_at.getTime() >= 60_000) {
    await db.updateTable("worker_tokens").set({ last_used_at: now() }).where("id", "=", row.id).execute();
  }
  return true;
}

function answerOf(row: Selectable<Tables["worker_tokens"]>): WorkerToken {
  return {
    id: row.id,
    name: row.name,
    prefix: row.prefix,
    created_at: row.created_at.toISOString(),
    last_used_at: row.last_used_at?.toISOString() ?? null,
  };
}
