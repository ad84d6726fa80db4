import { createHash, randomBytes, randomUUID } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { TokenKind } from "./tables.ts";

/** A token at the moment it is minted: the only time that its text is known. */
export interface MintedToken {
  token: string;
  tokenId: string;
  expiresAt: Date;
}

/** What its owner may see of a token later. */
export interface TokenInfo {
  id: string;
  kind: TokenKind;
  name: string;
  prefix: string;
  created_at: string;
  expires_at: string;
  last_used_at: string | null;
}

export interface TokenOwner {
  kind: TokenKind;
  userId: string;
  email: string;
  name: string;
  tokenId: string;
  expiresAt: Date;
}

/** Bearer tokens: `osm_` and 32 random bytes. Only a hash is stored; a fast one will do for 256 random bits. */
export function createTokens(parts: { db: Kysely<Tables>; now: () => Date }) {
  const { db, now } = parts;
  return {
    async mint(wanted: {
      userId: string;
      kind: TokenKind;
      name: string;
      lifetimeDays: number;
    }): Promise<MintedToken> {
      const token = `osm_${randomBytes(32).toString("base64url")}`;
      const tokenId = randomUUID();
      const expiresAt = new Date(now().getTime() + wanted.lifetimeDays * 86_400_000);
      await db
        .insertInto("tokens")
        .values({
          id: tokenId,
          user_id: wanted.userId,
          kind: wanted.kind,
          name: wanted.name,
          token_hash: hashSecret(token),
          prefix: token.slice(0, 10),
          expires_at: expiresAt,
        })
        .execute();
      return { token, tokenId, expiresAt };
    },

    /**
     * Whose token it is.
     *
     * @throws {OsmosisError} AUTH_REQUIRED with code TOKEN_MISSING, TOKEN_INVALID, TOKEN_REVOKED or TOKEN_EXPIRED.
     */
    async owner(token: string): Promise<TokenOwner> {
      if (token === "") throw refused("TOKEN_MISSING", "The Authorization header holds no bearer token.");
      const row = await db
        .selectFrom("tokens")
        .innerJoin("users", "users.id", "tokens.user_id")
        .select([
          "tokens.id",
          "tokens.kind",
          "tokens.user_id",
          "tokens.expires_at",
          "tokens.revoked_at",
          "tokens.last_used_at",
          "users.email",
          "users.name",
        ])
        .where("tokens.token_hash", "=", hashSecret(token))
        .executeTakeFirst();
      if (row === undefined) throw refused("TOKEN_INVALID", "This server does not know the token.");
      if (row.revoked_at !== null) throw refused("TOKEN_REVOKED", "The token was revoked.");
      if (row.expires_at <= now()) {
        throw refused("TOKEN_EXPIRED", `The token expired at ${row.expires_at.toISOString()}.`);
      }
      await noteUse(row.id, row.last_used_at);
      return {
        kind: row.kind,
        userId: row.user_id,
        email: row.email,
        name: row.name,
        tokenId: row.id,
        expiresAt: row.expires_at,
      };
    },

    /** @throws {OsmosisError} NOT_FOUND when the user has no such token. Revoking twice is fine. */
    async revoke(userId: string, tokenId: string): Promise<void> {
      const result = await db
        .updateTable("tokens")
        .set((eb) => ({ revoked_at: eb.fn.coalesce("revoked_at", eb.val(now())) }))
        .where("id", "=", tokenId)
        .where("user_id", "=", userId)
        .executeTakeFirst();
      if (result.numUpdatedRows === 0n) throw new OsmosisError("NOT_FOUND", "There is no such token.");
    },

    /** The user's tokens that still work, of one kind or of all, newest first. */
    async list(userId: string, kind?: TokenKind): Promise<TokenInfo[]> {
      const rows = await db
        .selectFrom("tokens")
        .select(["id", "kind", "name", "prefix", "created_at", "expires_at", "last_used_at"])
        .where("user_id", "=", userId)
        .where("revoked_at", "is", null)
        .where("expires_at", ">", now())
        .$if(kind !== undefined, (query) => query.where("kind", "=", kind ?? "trainer"))
        .orderBy("created_at", "desc")
        .execute();
      return rows.map((row) => ({
        ...row,
        created_at: row.created_at.toISOString(),
        expires_at: row.expires_at.toISOString(),
        last_used_at: row.last_used_at?.toISOString() ?? null,
      }));
    },
  };

  /** Once a minute is exact enough, and spares a write for each request. */
  async function noteUse(tokenId: string, lastUsedAt: Date | null): Promise<void> {
    if (lastUsedAt !== null && now().getTime() - lastUsedAt.getTime() < 60_000) return;
    await db.updateTable("tokens").set({ last_used_at: now() }).where("id", "=", tokenId).execute();
  }
}

/** How secrets of high entropy are stored: SHA-256 in hex. */
export function hashSecret(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

function refused(code: string, message: string): OsmosisError {
  return new OsmosisError("AUTH_REQUIRED", message, {
    hint: "Sign in with `osmosis auth login`.",
    details: { code },
  });
}
