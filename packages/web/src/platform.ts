import { createClient, workspaceRoutes, type Client, type Workspace } from "@osmosis/protocol";
import { useQuery, type UseQueryResult } from "@tanstack/react-query";

const origin = window.location.origin;

/** Calls as the signed-in person. */
export const person: Client = createClient({ baseUrl: origin, fetch: window.fetch.bind(window) });

/** Calls in the name of a workspace. */
export function clientOf(workspace: Workspace): Client {
  const repository = workspace.connected_repo?.repo_full_name ?? `${workspace.name}/workspace`;
  return createClient({
    baseUrl: origin,
    fetch: window.fetch.bind(window),
    headers: () => ({ "x-osmosis-git": repository.toLowerCase() }),
  });
}

/** The workspaces that the person may enter. */
export function useWorkspaces(): UseQueryResult<readonly Workspace[]> {
  return useQuery({
    queryKey: ["workspaces"],
    queryFn: async ({ signal }) => (await person.call(workspaceRoutes.list, { signal })).workspaces,
  });
}

/** How often a page that shows something in motion asks anew. */
export const LIVE_MS = 1000;

/** A run in one of these states does not change any more. */
export function isFinal(status: string): boolean {
  return status !== "pending" && status !== "running";
}
