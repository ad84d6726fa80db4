import { randomBytes, randomInt, randomUUID } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import { createAttemptLimit } from "./attempt-limit.ts";
import { hashSecret } from "./tokens.ts";

const LIFETIME_SECONDS = 15 * 60;
const INTERVAL_SECONDS = 5;
/** Nobody has to be signed in to begin, so one address may begin so often. */
const BEGINNINGS = { window: 60, max: 30 };
/** Consonants only: no digit that looks like a letter, and no words. */
const USER_CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ";

/** What a device polls for, and what a poll finds. */
export type DevicePoll =
  | { status: "authorization_pending" | "slow_down" | "expired_token" | "access_denied" }
  | { status: "approved"; userId: string; deviceName: string };

/**
 * Signing in a device that has no browser: it asks for a pair of codes, shows the short one, and polls with the long
 * one until a signed-in person has approved the short one.
 *
 * A grant goes `pending → approved → redeemed` or `pending → denied`; after 15 minutes it is expired in every state.
 * `approved → redeemed` happens once, so of two polls that race only one gets a token.
 */
export function createDeviceGrants(parts: { db: Kysely<Tables>; now: () => Date }) {
  const { db, now } = parts;
  const beginnings = createAttemptLimit(now);
  return {
    /** @throws {OsmosisError} RATE_LIMITED for an address that has begun too often. */
    async authorize({ deviceName, clientAddress }: { deviceName: string; clientAddress: string }) {
      const { allowed, retryAfter } = await beginnings.consume(clientAddress, BEGINNINGS);
      if (!allowed) {
        throw new OsmosisError("RATE_LIMITED", "Too many devices asked to be signed in from this address.", {
          hint: `Try again in ${retryAfter} seconds.`,
          details: { retry_after_seconds: retryAfter },
        });
      }
      // To whoever polls, one that has expired is like one that never was.
      await db.deleteFrom("device_grants").where("expires_at", "<=", now()).execute();
      const deviceCode = randomBytes(32).toString("base64url");
      const userCode = newUserCode();
      await db
        .insertInto("device_grants")
        .values({
          id: randomUUID(),
          device_code_hash: hashSecret(deviceCode),
          user_code: userCode,
          device_name: deviceName,
          status: "pending",
          user_id: null,
          expires_at: new Date(now().getTime() + LIFETIME_SECONDS * 1000),
          interval_seconds: INTERVAL_SECONDS,
        })
        .execute();
      return { deviceCode, userCode, expiresInSeconds: LIFETIME_SECONDS, intervalSeconds: INTERVAL_SECONDS };
    },

    /** The device that shows this code and waits, for the person who is to approve it. */
    async find(userCode: string): Promise<{ userCode: string; deviceName: string; expiresAt: Date }> {
      const row = await db
        .selectFrom("device_grants")
        .select(["user_code", "device_name", "expires_at"])
        .where("user_code", "=", normalizeUserCode(userCode))
        .where("status", "=", "pending")
        .executeTakeFirst();
      if (row === undefined || row.expires_at <= now()) throw unknownCode();
      return { userCode: row.user_code, deviceName: row.device_name, expiresAt: row.expires_at };
    },

    /** @throws {OsmosisError} NOT_FOUND unless the code is pending and has not expired. */
    async decide(decision: { userCode: string; userId: string; approve: boolean }): Promise<void> {
      const result = await db
        .updateTable("device_grants")
        .set({ status: decision.approve ? "approved" : "denied", user_id: decision.userId })
        .where("user_code", "=", normalizeUserCode(decision.userCode))
        .where("status", "=", "pending")
        .where("expires_at", ">", now())
        .executeTakeFirst();
      if (result.numUpdatedRows === 0n) throw unknownCode();
    },

    async poll(deviceCode: string): Promise<DevicePoll> {
      const row = await db
        .selectFrom("device_grants")
        .selectAll()
        .where("device_code_hash", "=", hashSecret(deviceCode))
        .executeTakeFirst();
      if (row === undefined || row.expires_at <= now() || row.status === "redeemed")
        return { status: "expired_token" };
      if (row.status === "denied") return { status: "access_denied" };
      if (row.status === "pending") {
        const isEarly =
          row.last_polled_at !== null &&
          now().getTime() - row.last_polled_at.getTime() < row.interval_seconds * 500;
        await db
          .updateTable("device_grants")
          .set({ last_polled_at: now() })
          .where("id", "=", row.id)
          .execute();
        return { status: isEarly ? "slow_down" : "authorization_pending" };
      }
      const redeemed = await db
        .updateTable("device_grants")
        .set({ status: "redeemed" })
        .where("id", "=", row.id)
        .where("status", "=", "approved")
        .executeTakeFirst();
      if (redeemed.numUpdatedRows === 0n || row.user_id === null) return { status: "expired_token" };
      return { status: "approved", userId: row.user_id, deviceName: row.device_name };
    },
  };
}

function newUserCode(): string {
  const letters = Array.from(
    { length: 8 },
    () => USER_CODE_LETTERS[randomInt(USER_CODE_LETTERS.length)] ?? "B",
  );
  return `${letters.slice(0, 4).join("")}-${letters.slice(4).join("")}`;
}

/** People type it in lower case and without the hyphen. */
function normalizeUserCode(typed: string): string {
  const letters = typed.toUpperCase().replaceAll(/[^A-Z]/g, "");
  return `${letters.slice(0, 4)}-${letters.slice(4)}`;
}

function unknownCode(): OsmosisError {
  return new OsmosisError("NOT_FOUND", "This code is not known, was used, or has expired.", {
    hint: "Start `osmosis auth login` again and enter the code that it shows.",
  });
}
