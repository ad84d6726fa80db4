import type { User } from "../features/accounts/service.ts";
import type { WorkspaceAccess } from "../features/workspaces/service.ts";

/** What the middlewares leave for a route: `c.get("user")` after `requireUser`, both after `requireWorkspace`. */
export interface AppEnv {
  Variables: {
    user: User;
    workspace: WorkspaceAccess;
  };
}
