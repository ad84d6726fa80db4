import { Hono } from "hono";
import { z } from "zod";
import type { AppEnv } from "../../http/context.ts";
import { parseBody } from "../../http/parse.ts";
import { requireUser } from "../../http/require-user.ts";
import { parseRepository } from "../../http/require-workspace.ts";
import type { Platform } from "../../platform.ts";
import type { User } from "./service.ts";
import type { MintedToken } from "./tokens.ts";

/** The only routes of the auth library that are reachable. Everything else of it stays inside. */
const AUTH_LIBRARY_PATHS = ["/sign-in/email", "/sign-out", "/get-session", "/change-password"];

const DeviceAuthorize = z.object({ deviceName: z.string().trim().min(1).max(200).default("unnamed device") });
const DeviceToken = z.object({ device_code: z.string().min(1) });
const DeviceDecision = z.object({ user_code: z.string().min(1), approve: z.boolean() });
const NewToken = z.object({
  name: z.string().trim().min(1).max(200),
  expires_in_days: z.number().int().min(1).max(3650).default(90),
});

/** Signing in: browsers by password or link, devices by code, programs by token. */
export function accountRoutes(platform: Platform): Hono<AppEnv> {
  const { accounts, url } = platform;
  const app = new Hono<AppEnv>();
  const signedIn = requireUser(platform);

  for (const path of AUTH_LIBRARY_PATHS) {
    app.on(["GET", "POST"], `/api/auth${path}`, (c) => accounts.handleAuthRequest(c.req.raw));
  }

  app.get("/sign-in", async (c, next) => {
    const token = c.req.query("token");
    if (token === undefined) return await next();
    c.header("Referrer-Policy", "no-referrer");
    return await accounts.useSignInToken(token, c.req.raw.headers);
  });

  app.post("/api/cli/device/authorize", async (c) => {
    const { deviceName } = await parseBody(c, DeviceAuthorize);
    const grant = await accounts.devices.authorize(deviceName);
    const page = `${url}/device`;
    return c.json({
      device_code: grant.deviceCode,
      user_code: grant.userCode,
      verification_uri: page,
      verification_uri_complete: `${page}?user_code=${grant.userCode}`,
      expires_in: grant.expiresInSeconds,
      interval: grant.intervalSeconds,
    });
  });

  app.post("/api/cli/device/token", async (c) => {
    const { device_code: deviceCode } = await parseBody(c, DeviceToken);
    const poll = await accounts.devices.poll(deviceCode);
    if (poll.status !== "approved") return c.json({ error: poll.status }, 400);
    const minted = await accounts.mintDeviceToken(poll.userId, poll.deviceName);
    const user = await accounts.userById(poll.userId);
    if (user === undefined) return c.json({ error: "access_denied" }, 400);
    return c.json(tokenAnswer(minted, user));
  });

  app.get("/api/device/:userCode", signedIn, async (c) => {
    const grant = await accounts.devices.find(c.req.param("userCode"));
    return c.json({
      device_name: grant.deviceName,
      status: grant.status,
      expires_at: grant.expiresAt.toISOString(),
    });
  });

  app.post("/api/device", signedIn, async (c) => {
    const { user_code: userCode, approve } = await parseBody(c, DeviceDecision);
    await accounts.devices.decide({ userCode, userId: c.get("user").id, approve });
    return c.json({ status: approve ? "approved" : "denied" });
  });

  app.get("/api/cli/verify", signedIn, async (c) => {
    const user = c.get("user");
    const header = c.req.header("x-osmosis-git");
    const access =
      header === undefined
        ? undefined
        : await platform.workspaces.accessByRepository(user.id, parseRepository(header));
    return c.json({
      user: { id: user.id, email: user.email, name: user.name },
      expires_at: user.token?.expiresAt.toISOString(),
      token_id: user.token?.id,
      workspace: access === undefined ? null : { id: access.id, name: access.name, role: access.role },
    });
  });

  app.get("/api/me", signedIn, (c) => {
    const { id, email, name } = c.get("user");
    return c.json({ user: { id, email, name, is_owner: id === platform.owner.id } });
  });

  app.delete("/api/cli/tokens/:id", signedIn, async (c) => {
    await accounts.tokens.revoke(c.get("user").id, c.req.param("id"));
    return c.body(null, 204);
  });

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

/** A minted token with its user, as every route that mints one answers. */
export function tokenAnswer(minted: MintedToken, user: User) {
  return {
    token: minted.token,
    token_id: minted.tokenId,
    expires_at: minted.expiresAt.toISOString(),
    user: { id: user.id, email: user.email, name: user.name },
  };
}
