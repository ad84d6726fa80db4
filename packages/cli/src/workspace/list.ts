import { workspaceRoutes } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { wholePage, type ListResult } from "../output/result.ts";
import { openSession } from "../platform/session.ts";
import { findWorkspace } from "./workspace.ts";

/** The workspaces of whoever is signed in, on the platform of the current folder. */
export async function listWorkspaces(context: Context): Promise<ListResult> {
  const identity = (await findWorkspace(context))?.identity;
  const { client, platformUrl } = await openSession(context, identity);
  const { workspaces } = await client.call(workspaceRoutes.list, {});
  return {
    kind: "list",
    items: workspaces,
    page: wholePage(workspaces.length),
    table: {
      headers: ["NAME", "ROLE", "REPOSITORY", "CLONE URL"],
      rows: workspaces.map((workspace) => [
        workspace.name,
        workspace.role,
        workspace.connected_repo?.repo_full_name ?? "–",
        workspace.clone_url,
      ]),
    },
    empty: "No workspaces yet. Create one with `osmosis workspace create NAME --clone`.",
    extras: { platform_url: platformUrl },
  };
}
