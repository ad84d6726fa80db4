import { randomUUID } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import { readText } from "../../http/read-text.ts";
import type { Keys } from "../../keys.ts";
import { CLIENT_ADDRESS_HEADER, createAuth } from "./auth.ts";
import { createDeviceGrants } from "./device-grants.ts";
import { createTokens, type MintedToken } from "./tokens.ts";

/** The person behind a request. */
export interface User {
  id: string;
  email: string;
  name: string;
  /** The bearer token that the request came with; absent for a browser session. */
  token?: { id: string; expiresAt: Date };
}

export type Accounts = ReturnType<typeof createAccounts>;

const DEVICE_TOKEN_DAYS = 90;
/** A password is at most 128 characters long. */
const AUTH_BODY_BYTES = 64 * 1024;
const OWNER_EMAIL = "owner@osmosis.local";

/** People, their sessions and their tokens. `url` is the server's public address, to which cookies belong. */
export function createAccounts(parts: { db: Kysely<Tables>; now: () => Date; url: string; keys: Keys }) {
  const { db, url } = parts;
  const tokens = createTokens(parts);
  const devices = createDeviceGrants(parts);
  const { auth, createSignInToken } = createAuth({
    db,
    url,
    secret: parts.keys.derive("sessions").toString("base64"),
    now: parts.now,
  });

  return {
    tokens,
    devices,

    /** The auth library's own routes, below `/api/auth`. The address counts how often somebody tries a password. */
    async handleAuthRequest(request: Request, clientAddress: string): Promise<Response> {
      const headers = new Headers(request.headers);
      headers.set(CLIENT_ADDRESS_HEADER, clientAddress);
      const { method, url: address } = request;
      const body = method === "GET" ? null : await readText(request, AUTH_BODY_BYTES);
      const answer = await auth.handler(new Request(address, { method, headers, body }));
      // The library has a header of its own for it.
      const retryAfter = answer.headers.get("x-retry-after");
      if (answer.status === 429 && retryAfter !== null) answer.headers.set("Retry-After", retryAfter);
      return answer;
    },

    /**
     * Adds a person. Without a password they can sign in by link only.
     *
     * @throws {OsmosisError} CONFLICT when the address is taken.
     */
    async createUser(person: { email: string; name: string; password?: string }): Promise<User> {
      const email = person.email.toLowerCase();
      const context = await auth.$context;
      if ((await context.internalAdapter.findUserByEmail(email)) !== null) {
        throw new OsmosisError("CONFLICT", `Somebody is registered with the address ${email} already.`);
      }
      const user = await context.internalAdapter.createUser(
        { email, name: person.name, emailVerified: true },
        { method: "admin" },
      );
      if (person.password !== undefined) {
        await context.internalAdapter.linkAccount({
          userId: user.id,
          providerId: "credential",
          accountId: user.id,
          password: await context.password.hash(person.password),
        });
      }
      return { id: user.id, email: user.email, name: user.name };
    },

    /** The owner of this server, who is made at the first call. */
    async ensureOwner(): Promise<User> {
      const find = () =>
        db
          .selectFrom("users")
          .select(["id", "email", "name"])
          .where("is_owner", "=", true)
          .executeTakeFirst();
      const owner = await find();
      if (owner !== undefined) return owner;
      const isNamed = await db
        .selectFrom("users")
        .select("id")
        .where("email", "=", OWNER_EMAIL)
        .executeTakeFirst();
      if (isNamed === undefined) await this.createUser({ email: OWNER_EMAIL, name: "Owner" });
      await db.updateTable("users").set({ is_owner: true }).where("email", "=", OWNER_EMAIL).execute();
      return await db
        .selectFrom("users")
        .select(["id", "email", "name"])
        .where("is_owner", "=", true)
        .executeTakeFirstOrThrow();
    },

    /** @throws {OsmosisError} AUTH_REQUIRED; see {@link createTokens}. */
    async userOfToken(token: string, { forTrainer = false } = {}): Promise<User> {
      const owner = await tokens.owner(token);
      if (owner.kind === "trainer" && !forTrainer) {
        throw new OsmosisError("AUTH_REQUIRED", "This is an API key of the trainer; it opens /api/v1 only.", {
          hint: "Sign in with `osmosis auth login`.",
          details: { code: "TOKEN_INVALID" },
        });
      }
      return {
        id: owner.userId,
        email: owner.email,
        name: owner.name,
        token: { id: owner.tokenId, expiresAt: owner.expiresAt },
      };
    },

    /** The person whose browser sent these headers, if it is signed in. */
    async userOfSession(headers: Headers): Promise<User | undefined> {
      if (!headers.has("cookie")) return undefined;
      const session = await auth.api.getSession({ headers });
      if (session === null) return undefined;
      return { id: session.user.id, email: session.user.email, name: session.user.name };
    },

    /** A link that signs one browser in, once, within half an hour. */
    async createSignInLink(email: string): Promise<string> {
      const token = await createSignInToken(email, randomUUID());
      return `${url}/sign-in?token=${encodeURIComponent(token)}`;
    },

    /**
     * Uses up the token of a sign-in link: an answer with the session cookie that leads to the dashboard, or to the
     * sign-in page with `error=…`.
     */
    async useSignInToken(token: string, headers: Headers): Promise<Response> {
      const query = new URLSearchParams({ token, callbackURL: "/", errorCallbackURL: "/sign-in" });
      return await auth.handler(new Request(`${url}/api/auth/magic-link/verify?${query}`, { headers }));
    },

    /** A token for a device whose grant was approved. */
    async mintDeviceToken(userId: string, deviceName: string): Promise<MintedToken> {
      return await tokens.mint({ userId, kind: "device", name: deviceName, lifetimeDays: DEVICE_TOKEN_DAYS });
    },

    async userByEmail(email: string): Promise<User | undefined> {
      return await db
        .selectFrom("users")
        .select(["id", "email", "name"])
        .where("email", "=", email.toLowerCase())
        .executeTakeFirst();
    },

    async userById(userId: string): Promise<User | undefined> {
      return await db
        .selectFrom("users")
        .select(["id", "email", "name"])
        .where("id", "=", userId)
        .executeTakeFirst();
    },
  };
}
