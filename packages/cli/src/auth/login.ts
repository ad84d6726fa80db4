import { authRoutes, OsmosisError, type Client } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import type { Login } from "../credentials/store.ts";
import type { OperationResult } from "../output/result.ts";
import { formatTime } from "../output/format.ts";
import { credentialStore, platformClient, resolvePlatformUrl } from "../platform/session.ts";
import { dataFolder, readLocalSecret, readRunning } from "../up/data-folder.ts";
import { findWorkspace } from "../workspace/workspace.ts";
import { signInWithDevice } from "./device.ts";

type LoginOptions = { readonly token?: string; readonly local?: boolean; readonly data?: string };

/** Signs in and keeps the login. A login that was there for the platform is replaced only when the new one works. */
export async function login(context: Context, options: LoginOptions): Promise<OperationResult> {
  const store = credentialStore(context);
  const folder = dataFolder(context, options.data);
  const running = await readRunning(folder);
  const isTold = context.platformFlag !== undefined || context.env["OSMOSIS_PLATFORM_URL"];
  const platformUrl =
    options.local === true && !isTold && running !== undefined
      ? running.url
      : await resolvePlatformUrl(context, store, (await findWorkspace(context))?.identity);
  if (context.env["OSMOSIS_TOKEN"] && options.token === undefined) {
    throw new OsmosisError("CONFLICT", "OSMOSIS_TOKEN is set, and would be used in place of this login.", {
      hint: "Unset OSMOSIS_TOKEN, then sign in.",
    });
  }
  const client = platformClient(context, platformUrl);
  const isOurs = options.local === true || (options.token === undefined && running?.url === platformUrl);
  const { signInUrl, ...signedIn }: Login & { signInUrl?: string } =
    options.token !== undefined
      ? await signInWithToken(context, platformUrl, options.token)
      : isOurs
        ? await signInLocally(context, client, folder)
        : await signInWithDevice(context, client);

  const before = await store.read(platformUrl).catch(() => undefined);
  const kept = await store.save(signedIn);
  await revokeReplaced(context, platformUrl, before, signedIn);
  const usual = await resolvePlatformUrl({ ...context, platformFlag: undefined }, store);
  if (usual !== platformUrl) {
    context.note(
      `Commands here go on talking to ${usual}, ${context.env["OSMOSIS_PLATFORM_URL"] ? "which OSMOSIS_PLATFORM_URL names" : "which hosts this workspace"}: add --platform ${platformUrl} for the other.`,
    );
  }
  return {
    kind: "operation",
    operation: "auth.login",
    status: "success",
    message: `Signed in as ${signedIn.user.email} at ${platformUrl}.`,
    fields: [
      ["Token kept in", kept === "keyring" ? "the system's keyring" : "an encrypted file"],
      ["Expires", formatTime(signedIn.expiresAt)],
      ...(signInUrl === undefined ? [] : [["Dashboard", `${signInUrl} (once, within 30 minutes)`] as const]),
    ],
    resource: {
      user: signedIn.user,
      platform_url: platformUrl,
      expires_at: signedIn.expiresAt ?? null,
      token_store: kept,
      ...(signInUrl === undefined ? {} : { sign_in_url: signInUrl }),
    },
  };
}

async function signInWithToken(context: Context, platformUrl: string, option: string): Promise<Login> {
  const token = (option === "-" ? await context.io.readStdin() : option).trim();
  if (token === "" || /\s/.test(token)) {
    throw new OsmosisError("VALIDATION", "The token is empty or has white space in it.", {
      hint: "Copy the whole token, or pipe it: `osmosis auth login --token - < token.txt`.",
    });
  }
  const client = platformClient(context, platformUrl, { token });
  try {
    const { user, expires_at: expiresAt, token_id: tokenId } = await client.call(authRoutes.verify, {});
    return { platformUrl, token, tokenId: tokenId ?? undefined, user, expiresAt: expiresAt ?? undefined };
  } catch (error) {
    if (!(error instanceof OsmosisError) || error.code !== "AUTH_REQUIRED") throw error;
    throw new OsmosisError("AUTH_REQUIRED", `${platformUrl} does not accept this token: ${error.message}`, {
      hint: "Sign in with the browser instead (osmosis auth login), and check --platform. Nothing was saved.",
      cause: error,
      ...(error.details === undefined ? {} : { details: error.details }),
    });
  }
}

/** The owner's login, and a link for the owner's browser, for whoever can read the secret in the data folder. */
async function signInLocally(
  context: Context,
  client: Client,
  folder: string,
): Promise<Login & { signInUrl: string }> {
  const secret = await readLocalSecret(folder);
  if (secret === undefined) {
    throw new OsmosisError("NOT_FOUND", `There is no readable platform data in ${folder}.`, {
      hint: "Start the platform with `osmosis up`, or name its folder with --data.",
    });
  }
  const answer = await client.call(authRoutes.localToken, {
    body: { secret, name: `osmosis on ${context.io.hostname}` },
  });
  return {
    platformUrl: client.baseUrl,
    token: answer.token,
    tokenId: answer.token_id,
    user: answer.user,
    expiresAt: answer.expires_at,
    signInUrl: answer.sign_in_url,
  };
}

async function revokeReplaced(
  context: Context,
  platformUrl: string,
  before: Login | undefined,
  now: Login,
): Promise<void> {
  if (before?.tokenId === undefined || before.tokenId === now.tokenId) return;
  try {
    await platformClient(context, platformUrl, { token: before.token }).call(authRoutes.revokeToken, {
      params: { token_id: before.tokenId },
      timeoutMs: 5000,
    });
  } catch {
    // The old token may have expired, or belong to a platform that this URL had before.
  }
}
