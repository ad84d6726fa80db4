import { authRoutes, createClient, workspaceRoutes, type Client, type Workspace } from "@osmosis/protocol";
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import type { z } from "zod";

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

export const WORKSPACES_KEY = ["workspaces"];

/** The workspaces that the person may enter. */
export function useWorkspaces(): UseQueryResult<readonly Workspace[]> {
  return useQuery({
    queryKey: WORKSPACES_KEY,
    queryFn: async ({ signal }) => (await person.call(workspaceRoutes.list, { signal })).workspaces,
    // The first workspace is made on the command line while this page waits for it.
    refetchInterval: ({ state }) => (state.data?.length === 0 ? 2 * LIVE_MS : false),
  });
}

export const SESSION_KEY = ["session"];

export type Session = z.output<typeof authRoutes.session.response>;

/** Who is signed in; asks again and again only where `watch` says so. */
export function useSession({ watch = false } = {}): UseQueryResult<Session> {
  return useQuery({
    queryKey: SESSION_KEY,
    queryFn: ({ signal }) => person.call(authRoutes.session, { signal }),
    refetchInterval: watch ? 2 * LIVE_MS : false,
  });
}

/** Ends the session of this browser. */
export async function signOut(): Promise<void> {
  await window.fetch("/api/auth/sign-out", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  // A new document: nothing that the person saw stays in memory.
  window.location.assign("/sign-in");
}

/** How often a page that shows something in motion asks anew. */
export const LIVE_MS = 1000;

/** A run in one of these states does not change any more. */
export function isFinal(status: string): boolean {
  return status !== "pending" && status !== "running";
}
