import { getConnInfo } from "@hono/node-server/conninfo";
import { OsmosisError, authRoutes } from "@osmosis/protocol";
import type { Context, Hono } from "hono";
import { z } from "zod";
import type { AppEnv } from "../../http/context.ts";
import { parseBody } from "../../http/parse.ts";
import { requireUser } from "../../http/require-user.ts";
import { isSameSecret } from "../../http/require-worker.ts";
import { parseRepository } from "../../http/require-workspace.ts";
import { createRouter } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import type { User } from "./service.ts";
import type { MintedToken } from "./tokens.ts";

/** The only routes of the auth library that are reachable. Everything else of it stays inside. */
const AUTH_LIBRARY_PATHS = ["/sign-in/email", "/sign-out", "/get-session", "/change-password"];

const LOCAL_TOKEN_DAYS = 90;

const DevicePollBody = z.object({ device_code: z.string().min(1) });

const NewToken = z.object({
  name: z.string().trim().min(1).max(200),
  expires_in_days: z.number().int().min(1).max(3650).default(90),
});

/** Signing in: browsers by password or link, devices by code, programs by token. */
export function accountRoutes(platform: Platform): Hono<AppEnv> {
  const { accounts, url } = platform;
  const router = createRouter(platform);
  const { app } = router;
  const signedIn = requireUser(platform);

  for (const path of AUTH_LIBRARY_PATHS) {
    app.on(["GET", "POST"], `/api/auth${path}`, (c) => accounts.handleAuthRequest(c.req.raw, addressOf(c)));
  }

  app.get("/sign-in", async (c, next) => {
    const token = c.req.query("token");
    if (token === undefined) return await next();
    c.header("Referrer-Policy", "no-referrer");
    return await accounts.useSignInToken(token, c.req.raw.headers);
  });

  router.on(authRoutes.authorizeDevice, async ({ body, c }) => {
    const { deviceName } = body;
    const grant = await accounts.devices.authorize({ deviceName, clientAddress: addressOf(c) });
    const page = `${url}/device`;
    return {
      device_code: grant.deviceCode,
      user_code: grant.userCode,
      verification_uri: page,
      verification_uri_complete: `${page}?user_code=${grant.userCode}`,
      expires_in: grant.expiresInSeconds,
      interval: grant.intervalSeconds,
    };
  });

  // Not through the router: while the person has not decided, the answer is an OAuth error, not the envelope.
  app.post(authRoutes.pollDevice.path, async (c) => {
    const { device_code: deviceCode } = await parseBody(c, DevicePollBody);
    const poll = await accounts.devices.poll(deviceCode);
    if (poll.status !== "approved") return c.json({ error: poll.status }, 400);
    const user = await accounts.userById(poll.userId);
    if (user === undefined) return c.json({ error: "access_denied" }, 400);
    return c.json(tokenAnswer(await accounts.mintDeviceToken(user.id, poll.deviceName), user));
  });

  router.on(authRoutes.pendingDevice, async ({ params }) => {
    const grant = await accounts.devices.find(params.user_code);
    return {
      user_code: grant.userCode,
      device_name: grant.deviceName,
      expires_at: grant.expiresAt.toISOString(),
    };
  });

  router.on(authRoutes.approveDevice, async ({ params, body, user }) => {
    await accounts.devices.decide({ userCode: params.user_code, userId: user.id, approve: body.approve });
    return { status: body.approve ? ("approved" as const) : ("denied" as const) };
  });

  router.on(authRoutes.verify, async ({ c, user }) => {
    const header = c.req.header("x-osmosis-git");
    const access =
      header === undefined
        ? undefined
        : await platform.workspaces.accessByRepository(user.id, parseRepository(header));
    return {
      user: personAnswer(user),
      // A browser session has neither; leaving them out says so.
      ...(user.token === undefined
        ? {}
        : { expires_at: user.token.expiresAt.toISOString(), token_id: user.token.id }),
      workspace: access === undefined ? null : { id: access.id, name: access.name, role: access.role },
    };
  });

  router.on(authRoutes.revokeToken, async ({ params, user }) => {
    await accounts.tokens.revoke(user.id, params.token_id);
    return {};
  });

  router.on(authRoutes.localToken, async ({ body, c }) => {
    if (c.req.header("origin") !== undefined || !isSameSecret(body.secret, platform.localSecret)) {
      throw new OsmosisError("FORBIDDEN", "The secret is not the one of this server.", {
        hint: "Send the text of the file local-secret in the server's data folder.",
      });
    }
    const { owner } = platform;
    const minted = await accounts.tokens.mint({
      userId: owner.id,
      kind: "local",
      name: body.name,
      lifetimeDays: LOCAL_TOKEN_DAYS,
    });
    return { ...tokenAnswer(minted, owner), sign_in_url: await accounts.createSignInLink(owner.email) };
  });

  router.on(authRoutes.session, async ({ user }) => ({
    user: personAnswer(user),
    owns_platform: user.id === platform.owner.id,
    workspaces: (await platform.workspaces.listFor(user.id)).map(({ id, name, role }) => ({
      id,
      name,
      role,
    })),
  }));

  app.get("/api/tokens", signedIn, async (c) =>
    c.json({ tokens: await accounts.tokens.list(c.get("user").id) }),
  );

  app.post("/api/tokens", signedIn, async (c) => {
    const wanted = await parseBody(c, NewToken);
    const user = c.get("user");
    const minted = await accounts.tokens.mint({
      userId: user.id,
      kind: "personal",
      name: wanted.name,
      lifetimeDays: wanted.expires_in_days,
    });
    return c.json(tokenAnswer(minted, user), 201);
  });

  return app;
}

/** Where a request comes from. Headers of proxies are not believed: anybody can send them. */
function addressOf(c: Context<AppEnv>): string {
  return getConnInfo(c).remote.address ?? "unknown";
}

/** A minted token with its user, as every route that mints one answers. */
function tokenAnswer(minted: MintedToken, user: User) {
  return {
    token: minted.token,
    token_id: minted.tokenId,
    expires_at: minted.expiresAt.toISOString(),
    user: personAnswer(user),
  };
}

function personAnswer({ id, email, name }: User) {
  return { id, email, name };
}
