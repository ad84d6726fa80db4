import { z } from "zod";
import { route } from "../route.ts";

const Person = z.object({ id: z.string(), email: z.string(), name: z.string().nullish() });

export const authRoutes = {
  /** Starts the device flow, RFC 8628. */
  authorizeDevice: route({
    method: "POST",
    path: "/api/cli/device/authorize",
    access: "public",
    body: z.object({ deviceName: z.string().max(200) }),
    response: z.object({
      device_code: z.string(),
      user_code: z.string(),
      verification_uri: z.string(),
      verification_uri_complete: z.string().optional(),
      expires_in: z.int(),
      interval: z.int(),
    }),
  }),
  /** Polled until the person has approved; before that it answers 400 with `error: authorization_pending`. */
  pollDevice: route({
    method: "POST",
    path: "/api/cli/device/token",
    access: "public",
    body: z.object({ device_code: z.string() }),
    response: z.object({
      token: z.string(),
      user: Person,
      expires_at: z.string().nullish(),
      token_id: z.string().nullish(),
    }),
  }),
  verify: route({
    method: "GET",
    path: "/api/cli/verify",
    access: "user",
    response: z.object({
      user: Person,
      expires_at: z.string().nullish(),
      token_id: z.string().nullish(),
      workspace: z.object({ id: z.string(), name: z.string(), role: z.string() }).nullish(),
    }),
  }),
  revokeToken: route({
    method: "DELETE",
    path: "/api/cli/tokens/{token_id}",
    access: "user",
    response: z.object({}),
  }),
  /** For whoever can read the secret file in the data folder: the owner's token, without a password. */
  localToken: route({
    method: "POST",
    path: "/api/local/token",
    access: "public",
    body: z.object({ secret: z.string(), name: z.string().max(200) }),
    response: z.object({
      token: z.string(),
      token_id: z.string(),
      expires_at: z.string(),
      user: Person,
      sign_in_url: z.string(),
    }),
  }),
  /** The dashboard's own question: who is signed in, and where may they go? */
  session: route({
    method: "GET",
    path: "/api/session",
    access: "user",
    response: z.object({
      user: Person,
      /** Whether the person owns the platform, and so sees its workers. */
      owns_platform: z.boolean(),
      workspaces: z.array(z.object({ id: z.string(), name: z.string(), role: z.string() })),
    }),
  }),
  pendingDevice: route({
    method: "GET",
    path: "/api/device/{user_code}",
    access: "user",
    response: z.object({ user_code: z.string(), device_name: z.string(), expires_at: z.string() }),
  }),
  approveDevice: route({
    method: "POST",
    path: "/api/device/{user_code}",
    access: "user",
    body: z.object({ approve: z.boolean() }),
    response: z.object({ status: z.enum(["approved", "denied"]) }),
  }),
};
