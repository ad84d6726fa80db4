import { z } from "zod";
import { route } from "../route.ts";
import { SecretName } from "../run-config.ts";
import { PageQuery, pageFields } from "./page.ts";

export const SecretScope = z.enum(["workspace", "user"]);

/** A secret as the API shows it: never its value. */
export const Secret = z.object({
  id: z.string(),
  name: z.string(),
  scope: SecretScope,
  created_at: z.string(),
  updated_at: z.string(),
  creator_name: z.string().nullable(),
  updater_name: z.string().nullable(),
});
export type Secret = z.infer<typeof Secret>;

export const secretRoutes = {
  list: route({
    method: "GET",
    path: "/api/cli/environment-secrets",
    access: "workspace",
    query: PageQuery.extend({ scope: z.enum(["all", "workspace", "user"]).default("all") }),
    response: z.object({ environment_secrets: z.array(Secret), ...pageFields }),
  }),
  /** Makes or replaces. */
  set: route({
    method: "POST",
    path: "/api/cli/environment-secrets",
    access: "workspace",
    body: z.object({ name: SecretName, value: z.string().min(1).max(65_536), scope: SecretScope }),
    response: Secret,
  }),
  delete: route({
    method: "DELETE",
    path: "/api/cli/environment-secrets",
    access: "workspace",
    body: z.object({ name: z.string(), scope: SecretScope }),
    response: z.object({}),
  }),
};
