import { betterAuth } from "better-auth";
import { magicLink } from "better-auth/plugins";
import { CamelCasePlugin, type Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import { createAttemptLimit } from "./attempt-limit.ts";

/** The sign-in link's token lives this long; it is good for one use. */
const SIGN_IN_LINK_SECONDS = 30 * 60;

/** Tells the auth library the address of the client; the server sets it from the connection, over what was sent. */
export const CLIENT_ADDRESS_HEADER = "x-osmosis-client-address";

/**
 * The auth library on our tables: people, passwords and browser sessions. It speaks camelCase, the tables snake_case;
 * the plugin of the query builder translates, so its field names need no mapping of ours.
 */
export function createAuth(parts: { db: Kysely<Tables>; url: string; secret: string; now: () => Date }) {
  // The library hands a sign-in link to a callback, because it usually goes out by e-mail. Ours is returned to the
  // caller who asked for it, who names the request by a nonce.
  const requestedLinks = new Map<string, (token: string) => void>();
  const auth = betterAuth({
    appName: "Osmosis",
    baseURL: parts.url,
    basePath: "/api/auth",
    secret: parts.secret,
    database: { db: parts.db.withPlugin(new CamelCasePlugin()), type: "postgres", transaction: true },
    user: { modelName: "users" },
    session: { modelName: "sessions", expiresIn: 30 * 24 * 3600 },
    account: { modelName: "credentials" },
    verification: { modelName: "verifications" },
    emailAndPassword: { enabled: true, disableSignUp: true, minPasswordLength: 8 },
    trustedOrigins: loopbackTwins(parts.url),
    telemetry: { enabled: false },
    // Guessing passwords is slow: ten attempts a minute from one address.
    rateLimit: {
      enabled: true,
      window: 60,
      max: 600,
      customRules: { "/sign-in/email": { window: 60, max: 10 } },
      customStorage: createAttemptLimit(parts.now),
    },
    advanced: { ipAddress: { ipAddressHeaders: [CLIENT_ADDRESS_HEADER] } },
    // The server answers only these paths of the library; see routes.ts.
    disabledPaths: ["/sign-in/magic-link"],
    plugins: [
      magicLink({
        expiresIn: SIGN_IN_LINK_SECONDS,
        disableSignUp: true,
        storeToken: "hashed",
        // Nobody guesses a link, and its requests come from the server itself.
        rateLimit: { window: 60, max: 600 },
        sendMagicLink({ token, metadata }) {
          const nonce: unknown = metadata?.["nonce"];
          if (typeof nonce === "string") requestedLinks.get(nonce)?.(token);
        },
      }),
    ],
    logger: { level: "error" },
  });
  return {
    auth,
    /** A token with which one browser signs in as the user with this address, once. */
    createSignInToken: async (email: string, nonce: string): Promise<string> => {
      const { promise, resolve } = Promise.withResolvers<string>();
      requestedLinks.set(nonce, resolve);
      try {
        await auth.api.signInMagicLink({ body: { email, metadata: { nonce } }, headers: new Headers() });
        return await promise;
      } finally {
        requestedLinks.delete(nonce);
      }
    },
  };
}

/** A server on loopback is opened as `localhost` and as `127.0.0.1` alike. */
function loopbackTwins(url: string): string[] {
  const { hostname, protocol, port } = new URL(url);
  if (!["localhost", "127.0.0.1", "[::1]"].includes(hostname)) return [new URL(url).origin];
  return ["localhost", "127.0.0.1", "[::1]"].map(
    (name) => `${protocol}//${name}${port === "" ? "" : `:${port}`}`,
  );
}
