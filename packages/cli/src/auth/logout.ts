import { authRoutes } from "@osmosis/protocol";
import { confirmOrRefuse } from "../confirm.ts";
import type { Context } from "../context.ts";
import type { Login } from "../credentials/store.ts";
import type { OperationResult } from "../output/result.ts";
import { credentialStore, platformClient, resolvePlatformUrl } from "../platform/session.ts";
import { findWorkspace } from "../workspace/workspace.ts";

/** Forgets the login of one platform. The token is revoked there, too, when the platform can be reached. */
export async function logout(context: Context, options: { yes?: boolean }): Promise<OperationResult> {
  const store = credentialStore(context);
  const platformUrl = await resolvePlatformUrl(context, store, (await findWorkspace(context))?.identity);
  const known = (await store.platforms()).includes(platformUrl);
  if (!known) {
    return operation("noop", `There is no login for ${platformUrl}.`, platformUrl);
  }
  const isSure = await confirmOrRefuse(context, {
    isYes: options.yes === true,
    question: `Sign out of ${platformUrl}?`,
    preset: false,
    summary: { platform: platformUrl },
  });
  if (!isSure) return operation("cancelled", "Cancelled.", platformUrl);
  const login = await store.read(platformUrl).catch(() => undefined);
  await store.remove(platformUrl);
  await revoke(context, login);
  return operation("success", `Signed out of ${platformUrl}.`, platformUrl);
}

async function revoke(context: Context, login: Login | undefined): Promise<void> {
  if (login?.tokenId === undefined) return;
  try {
    await platformClient(context, login.platformUrl, { token: login.token }).call(authRoutes.revokeToken, {
      params: { token_id: login.tokenId },
      timeoutMs: 5000,
    });
  } catch {
    context.warn(
      "TOKEN_REVOKE_FAILED",
      `${login.platformUrl} did not confirm that the token is revoked; it stays valid until ${login.expiresAt ?? "it expires"}.`,
    );
  }
}

function operation(status: OperationResult["status"], message: string, platformUrl: string): OperationResult {
  return {
    kind: "operation",
    operation: "auth.logout",
    status,
    message,
    resource: { platform_url: platformUrl },
  };
}
