import { trainerKeyRoutes } from "@osmosis/protocol";
import type { Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { createRouter } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";

/** The letters that the SDKs insist on; the rest of a key is a token of ours, of which only a hash is stored. */
export const KEY_PREFIX = "tml-";

/** API keys of the Tinker wire: they open the trainer, and nothing else of the platform. */
export function trainerKeyRoutesOf(platform: Platform): Hono<AppEnv> {
  const { accounts, url } = platform;
  const router = createRouter(platform);

  router.on(trainerKeyRoutes.create, async ({ body, user }) => {
    const { token, tokenId, expiresAt } = await accounts.tokens.mint({
      userId: user.id,
      kind: "trainer",
      name: body.name,
      lifetimeDays: body.expires_in_days,
    });
    return {
      api_key: `${KEY_PREFIX}${token}`,
      token_id: tokenId,
      name: body.name,
      expires_at: expiresAt.toISOString(),
      base_url: url,
    };
  });

  router.on(trainerKeyRoutes.list, async ({ user }) => {
    const keys = await accounts.tokens.list(user.id, "trainer");
    return {
      keys: keys.map(({ id, name, prefix, created_at, expires_at, last_used_at }) => ({
        id,
        name,
        prefix: `${KEY_PREFIX}${prefix}`,
        created_at,
        expires_at,
        last_used_at,
      })),
    };
  });

  router.on(trainerKeyRoutes.revoke, async ({ params, user }) => {
    await accounts.tokens.revoke(user.id, params.key_id);
    return {};
  });

  return router.app;
}
