import { z } from "zod";
import { route } from "../route.ts";

/** An API key of the Tinker wire as its owner sees it later: never its text. */
export const TrainerKey = z.object({
  id: z.string(),
  name: z.string(),
  /** The first characters, by which its owner recognises it. */
  prefix: z.string(),
  created_at: z.string(),
  expires_at: z.string(),
  last_used_at: z.string().nullable(),
});
export type TrainerKey = z.infer<typeof TrainerKey>;

export const trainerKeyRoutes = {
  /** The only time that the key's text is told. */
  create: route({
    method: "POST",
    path: "/api/tinker-keys",
    access: "user",
    body: z.object({
      name: z.string().trim().min(1).max(200).default("Tinker API key"),
      expires_in_days: z.int().min(1).max(3650).default(365),
    }),
    response: z.object({
      api_key: z.string(),
      token_id: z.string(),
      name: z.string(),
      expires_at: z.string(),
      /** What the SDKs call TINKER_BASE_URL. */
      base_url: z.string(),
    }),
  }),
  list: route({
    method: "GET",
    path: "/api/tinker-keys",
    access: "user",
    response: z.object({ keys: z.array(TrainerKey) }),
  }),
  revoke: route({
    method: "DELETE",
    path: "/api/tinker-keys/{key_id}",
    access: "user",
    response: z.object({}),
  }),
};
