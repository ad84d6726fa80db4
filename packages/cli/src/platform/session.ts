import { createClient, errorMessage, errorOfAnswer, OsmosisError, type Client } from "@osmosis/protocol";
import { join } from "node:path";
import type { Context } from "../context.ts";
import { openCredentialStore, type CredentialStore, type Login } from "../credentials/store.ts";
import { openKeyring } from "../credentials/keyring.ts";
import type { Identity } from "../workspace/identity.ts";
import { findWorkspace, requireWorkspace, type Workspace } from "../workspace/workspace.ts";
import { DEFAULT_PLATFORM_URL, isLoopback, normalisePlatformUrl, refuseInsecure } from "./url.ts";

/** Calls to one platform as one person. */
export type Session = {
  readonly platformUrl: string;
  readonly token: string;
  readonly source: "environment" | "login";
  /** The saved login; undefined for a token from the environment. */
  readonly login: Login | undefined;
  readonly client: Client;
};

export type WorkspaceSession = Session & { readonly workspace: Workspace };

export function credentialStore(context: Context): CredentialStore {
  const { io, env } = context;
  const base = env["XDG_CONFIG_HOME"] || join(io.home, ".config");
  return openCredentialStore({
    folder: join(base, "osmosis"),
    keyring: openKeyring({ operatingSystem: io.operatingSystem, env }),
    now: io.now,
  });
}

/**
 * The platform that a command talks to: `--platform`, then `OSMOSIS_PLATFORM_URL`, then the platform that
 * `OSMOSIS_TOKEN` is bound to, then the one among the logins that hosts the `origin` of the workspace (the one around the
 * current folder unless another is named), then the newest login, then the one on this machine.
 */
export async function resolvePlatformUrl(
  context: Context,
  store: CredentialStore,
  identity?: Identity,
): Promise<string> {
  const { env, platformFlag } = context;
  const told =
    platformFlag ??
    (env["OSMOSIS_PLATFORM_URL"] || (env["OSMOSIS_TOKEN"] ? env["OSMOSIS_TOKEN_PLATFORM_URL"] : undefined));
  if (told) {
    const url = normalisePlatformUrl(told);
    refuseInsecure(url, env);
    return url;
  }
  const known = await store.platforms();
  if (known.length === 0) return DEFAULT_PLATFORM_URL;
  const { origin } = identity ?? (await findWorkspace(context))?.identity ?? {};
  const host = known.find((url) => origin !== undefined && new URL(url).origin === origin);
  return host ?? known[0] ?? DEFAULT_PLATFORM_URL;
}

/**
 * Signed in, outside of any workspace.
 *
 * @throws OsmosisError `AUTH_REQUIRED` without a usable token.
 */
export async function openSession(context: Context, identity?: Identity): Promise<Session> {
  const store = credentialStore(context);
  const platformUrl = await resolvePlatformUrl(context, store, identity);
  const fromEnvironment = environmentToken(context, platformUrl);
  const login = fromEnvironment === undefined ? await store.read(platformUrl) : undefined;
  const token = fromEnvironment ?? login?.token;
  if (token === undefined) {
    throw new OsmosisError("AUTH_REQUIRED", `You are not signed in at ${platformUrl}.`, {
      hint: `Run \`osmosis auth login\`, or set OSMOSIS_TOKEN.${cloneHint(platformUrl, identity)}`,
      details: { platform_url: platformUrl },
    });
  }
  if (login?.expiresAt !== undefined && Date.parse(login.expiresAt) <= context.io.now()) {
    throw new OsmosisError("AUTH_REQUIRED", `Your login at ${platformUrl} expired at ${login.expiresAt}.`, {
      hint: "Run `osmosis auth login` to sign in again.",
      details: { platform_url: platformUrl },
    });
  }
  return {
    platformUrl,
    token,
    source: fromEnvironment === undefined ? "login" : "environment",
    login,
    client: platformClient(context, platformUrl, { token, ...(identity === undefined ? {} : { identity }) }),
  };
}

/** A clone from another platform on this machine: nobody signed in there yet, so it was not asked. */
function cloneHint(platformUrl: string, identity: Identity | undefined): string {
  const origin = identity?.origin;
  if (origin === undefined || origin === new URL(platformUrl).origin || !isLoopback(origin)) return "";
  return ` This clone is of ${origin}: \`osmosis auth login --platform ${origin}\` signs in there.`;
}

/** Signed in, in the workspace around the current folder. Every call says which repository it is about. */
export async function openWorkspaceSession(context: Context): Promise<WorkspaceSession> {
  const workspace = await requireWorkspace(context);
  return { ...(await openSession(context, workspace.identity)), workspace };
}

/** The typed client with the headers of this command. */
export function platformClient(
  context: Context,
  platformUrl: string,
  who: { token?: string; identity?: Identity } = {},
): Client {
  const client = createClient({
    baseUrl: platformUrl,
    fetch: context.io.fetch,
    headers: () => headersOf(context, who),
  });
  return {
    baseUrl: client.baseUrl,
    async call(route, options) {
      try {
        return await client.call(route, { signal: context.io.interrupted, ...options });
      } catch (error) {
        throw withRemedy(error, context, platformUrl);
      }
    },
  };
}

/**
 * An answer of the platform that is a stream, from a path with its query.
 *
 * @throws OsmosisError what the platform says, or `NETWORK`.
 */
export async function workspaceStream(
  context: Context,
  { platformUrl, token, workspace }: WorkspaceSession,
  path: string,
): Promise<Response> {
  const { fetch, interrupted: signal } = context.io;
  const headers = headersOf(context, { token, identity: workspace.identity });
  const response = await fetch(new URL(path, platformUrl), { headers, signal }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw new OsmosisError("NETWORK", `No answer from ${platformUrl}: ${errorMessage(error)}.`, {
      hint: "Check that the platform is running (`osmosis up`) and that the URL is right.",
      cause: error,
    });
  });
  if (response.ok) return response;
  throw withRemedy(errorOfAnswer(response.status, await response.text()), context, platformUrl);
}

function headersOf(context: Context, who: { token?: string; identity?: Identity }): Record<string, string> {
  return {
    "user-agent": `osmosis-cli/${context.version}`,
    "x-osmosis-cli-version": context.version,
    ...(who.token === undefined ? {} : { authorization: `Bearer ${who.token}` }),
    ...(who.identity === undefined ? {} : { "x-osmosis-git": who.identity.name }),
  };
}

/** `OSMOSIS_TOKEN`, when it is meant for this platform. */
function environmentToken({ env }: Context, platformUrl: string): string | undefined {
  const token = env["OSMOSIS_TOKEN"];
  if (!token) return undefined;
  // A header takes no other characters, and what refuses them would print the token.
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new OsmosisError("AUTH_REQUIRED", "OSMOSIS_TOKEN holds characters that no token has.", {
      hint: "Copy it again, without white space and line breaks; or unset it to use your login.",
    });
  }
  const bound = env["OSMOSIS_TOKEN_PLATFORM_URL"];
  if (bound) {
    if (normalisePlatformUrl(bound) === platformUrl) return token;
    throw new OsmosisError(
      "CONFLICT",
      `OSMOSIS_TOKEN belongs to ${bound}, but this command talks to ${platformUrl}.`,
      {
        hint: "Change OSMOSIS_TOKEN_PLATFORM_URL and OSMOSIS_TOKEN together, or unset both to use your login.",
      },
    );
  }
  if (isLoopback(platformUrl)) return token;
  throw new OsmosisError("AUTH_REQUIRED", "OSMOSIS_TOKEN does not say which platform it is for.", {
    hint: `Set OSMOSIS_TOKEN_PLATFORM_URL=${platformUrl} if the token is for that platform.`,
  });
}

/** Says what to do about a refused token or repository; the saved login stays where it is. */
function withRemedy(error: unknown, context: Context, platformUrl: string): unknown {
  if (!(error instanceof OsmosisError)) return error;
  const code = error.details?.["code"];
  const details = { ...error.details, ...(code === undefined ? {} : { platform_code: code }) };
  if (error.code === "AUTH_REQUIRED") {
    const hint = context.env["OSMOSIS_TOKEN"]
      ? `OSMOSIS_TOKEN was refused by ${platformUrl}: set a valid one, or unset it to use your login.`
      : `Run \`osmosis auth login\` to sign in again at ${platformUrl}.`;
    return new OsmosisError("AUTH_REQUIRED", error.message, { hint, cause: error, details });
  }
  return new OsmosisError(error.code, error.message, {
    ...(error.hint === undefined ? {} : { hint: error.hint }),
    cause: error,
    details,
  });
}
