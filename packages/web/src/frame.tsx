import { OsmosisError, type Client, type Workspace } from "@osmosis/protocol";
import { Link, Navigate, Outlet, useParams } from "@tanstack/react-router";
import { createContext, useContext, useMemo, type ReactElement } from "react";
import { clientOf, useWorkspaces } from "./platform.ts";
import { Problem } from "./problem.tsx";

type Place = { readonly workspace: Workspace; readonly client: Client };

const PlaceContext = createContext<Place | undefined>(undefined);

/** The workspace that the page is in, and the client that speaks in its name. */
export function usePlace(): Place {
  const place = useContext(PlaceContext);
  if (place === undefined) throw new Error("this page is not inside a workspace");
  return place;
}

/** The bar above every page; leads to the sign-in page when nobody is signed in. */
export function Frame(): ReactElement {
  const workspaces = useWorkspaces();
  const { workspace: current } = useParams({ strict: false });
  if (workspaces.error instanceof OsmosisError && workspaces.error.code === "AUTH_REQUIRED") {
    return <Navigate to="/sign-in" />;
  }
  return (
    <>
      <header className="bar">
        <Link to="/" className="brand">
          osmosis
        </Link>
        <nav aria-label="Workspaces">
          {workspaces.data?.map(({ name }) => (
            <Link
              key={name}
              to="/$workspace"
              params={{ workspace: name }}
              aria-current={name === current ? "page" : undefined}
            >
              {name}
            </Link>
          ))}
        </nav>
      </header>
      {workspaces.error === null ? <Outlet /> : <Problem error={workspaces.error} />}
    </>
  );
}

export function HomePage(): ReactElement {
  const workspaces = useWorkspaces();
  const first = workspaces.data?.[0];
  if (first !== undefined) return <Navigate to="/$workspace" params={{ workspace: first.name }} replace />;
  if (workspaces.isPending) return <p className="waiting">Loading…</p>;
  return (
    <main className="centred">
      <h1>No workspace yet</h1>
      <p>A workspace holds a task and its agent in a Git repository. Make one with the command line:</p>
      <pre>osmosis workspace create my-team</pre>
    </main>
  );
}

export function WorkspaceFrame(): ReactElement {
  const { workspace: name } = useParams({ strict: false });
  const workspaces = useWorkspaces();
  const workspace = workspaces.data?.find((one) => one.name === name);
  const place = useMemo(
    () => (workspace === undefined ? undefined : { workspace, client: clientOf(workspace) }),
    [workspace],
  );
  if (workspaces.isPending) return <p className="waiting">Loading…</p>;
  if (place === undefined) return <MissingPage />;
  return (
    <PlaceContext value={place}>
      <Outlet />
    </PlaceContext>
  );
}

export function MissingPage(): ReactElement {
  return (
    <main className="centred">
      <h1>Nothing here</h1>
      <p>This page does not exist, or you are not a member of its workspace.</p>
      <Link to="/">Go to the runs</Link>
    </main>
  );
}
