import { workspaceRoutes } from "@osmosis/protocol";
import type { ListOptions } from "../commands/options.ts";
import type { Context } from "../context.ts";
import { formatTime } from "../output/format.ts";
import type { ListResult } from "../output/result.ts";
import { collectPages } from "../platform/pages.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";

/** The rollouts that the platform found in the branches that were pushed to it. */
export async function listRollouts(
  context: Context,
  options: ListOptions & { readonly branch?: string },
): Promise<ListResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const { branch } = options;
  const { items, page } = await collectPages(options, async (query) => {
    const { rollouts, ...rest } = await client.call(workspaceRoutes.rollouts, {
      query: { ...query, ...(branch === undefined ? {} : { branch }) },
    });
    return { items: rollouts, ...rest };
  });
  return {
    kind: "list",
    items,
    page,
    table: {
      headers: ["NAME", "BRANCH", "COMMIT", "ACTIVE", "CREATED"],
      rows: items.map((rollout) => [
        rollout.name,
        rollout.branch,
        rollout.last_synced_commit_sha.slice(0, 8),
        rollout.is_active ? "yes" : "no",
        formatTime(rollout.created_at),
      ]),
    },
    empty: "No rollouts. Push a branch with a folder under rollouts/: `git push`.",
    extras: workspaceExtras(workspace),
  };
}
