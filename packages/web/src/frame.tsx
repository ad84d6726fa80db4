import { OsmosisError, errorMessage, type Client, type Workspace } from "@osmosis/protocol";
import { useQueryClient } from "@tanstack/react-query";
import { Link, Navigate, Outlet, useNavigate, useParams, useRouter } from "@tanstack/react-router";
import {
  createContext,
  useContext,
  useEffect,
  useMemo,
  useState,
  useSyncExternalStore,
  type ReactElement,
} from "react";
import { forgetWantedPath, peekWantedPath } from "./account/wanted-path.ts";
import { isOutage } from "./outage.ts";
import { clientOf, signOut, useSession, useWorkspaces } from "./platform.ts";
import { Unanswered, Waiting } from "./problem.tsx";

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
  const { error } = workspaces;
  if (error instanceof OsmosisError && error.code === "AUTH_REQUIRED") {
    return <ToSignIn />;
  }
  return (
    <>
      <Bar workspaces={workspaces.data ?? []} />
      {workspaces.data === undefined ? (
        <main>
          <Unanswered query={workspaces} />
        </main>
      ) : (
        <Outlet />
      )}
      <OutageNote />
    </>
  );
}

/** Leads to the sign-in page, which remembers where somebody wanted to go. */
function ToSignIn(): ReactElement {
  const { navigate, latestLocation } = useRouter();
  // What was wanted is where this began, not where the navigation itself leads.
  const [wanted] = useState(latestLocation.href);
  useEffect(() => {
    void navigate({ to: "/sign-in", search: wanted === "/" ? {} : { to: wanted }, replace: true });
  }, [navigate, wanted]);
  return <Waiting>Loading…</Waiting>;
}

const SECTIONS = [
  { name: "Overview", to: "/$workspace", exact: true },
  { name: "Training", to: "/$workspace/training-runs", exact: false },
  { name: "Evaluation", to: "/$workspace/eval-runs", exact: false },
  { name: "Models", to: "/$workspace/models", exact: false },
  { name: "Data sets", to: "/$workspace/datasets", exact: false },
  { name: "Secrets", to: "/$workspace/secrets", exact: false },
] as const;

function Bar({ workspaces }: { readonly workspaces: readonly Workspace[] }): ReactElement {
  const { workspace: current } = useParams({ strict: false });
  const isMember = workspaces.some(({ name }) => name === current);
  return (
    <header className="bar">
      <Link to="/" className="brand">
        osmosis
      </Link>
      <WorkspaceChoice workspaces={workspaces} current={isMember ? current : undefined} />
      {current === undefined || !isMember ? null : (
        <nav aria-label="Parts of the workspace">
          {SECTIONS.map(({ name, to, exact }) => (
            <Link key={to} to={to} params={{ workspace: current }} activeOptions={{ exact }}>
              {name}
            </Link>
          ))}
        </nav>
      )}
      <Account />
    </header>
  );
}

function WorkspaceChoice(props: {
  readonly workspaces: readonly Workspace[];
  readonly current: string | undefined;
}): ReactElement | null {
  const { workspaces, current } = props;
  const navigate = useNavigate();
  if (workspaces.length === 0) return null;
  const [only] = workspaces;
  if (workspaces.length === 1 && only !== undefined) {
    return (
      <Link to="/$workspace" params={{ workspace: only.name }} className="place">
        {only.name}
      </Link>
    );
  }
  return (
    <select
      aria-label="Workspace"
      value={current ?? ""}
      onChange={({ target }) => void navigate({ to: "/$workspace", params: { workspace: target.value } })}
    >
      {current === undefined ? (
        <option value="" disabled>
          workspaces
        </option>
      ) : null}
      {workspaces.map(({ name }) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}

function Account(): ReactElement {
  const { data } = useSession();
  return (
    <div className="account">
      {data === undefined ? null : (
        <span className="quiet wide-only">
          <bdi>{data.user.name ?? data.user.email}</bdi>
        </span>
      )}
      {data?.owns_platform === true ? <Link to="/workers">Workers</Link> : null}
      <button type="button" className="plain" onClick={() => void signOut()}>
        Sign out
      </button>
    </div>
  );
}

/** Stands over the page while the platform does not answer; what was loaded stays. */
function OutageNote(): ReactElement | null {
  const queries = useQueryClient().getQueryCache();
  const isOut = useSyncExternalStore(
    (onChange) => queries.subscribe(onChange),
    () => queries.getAll().some((query) => query.isActive() && isOutage(query.state.fetchFailureReason)),
  );
  if (!isOut) return null;
  return (
    <p role="status" className="outage">
      The platform does not answer. This page goes on by itself as soon as it does.
    </p>
  );
}

/** Leads to the page that somebody wanted before signing in, else to the first workspace. */
export function HomePage(): ReactElement {
  const workspaces = useWorkspaces();
  const { history } = useRouter();
  const [wanted] = useState(peekWantedPath);
  useEffect(() => {
    forgetWantedPath();
    if (wanted !== undefined) history.replace(wanted);
  }, [wanted, history]);
  if (wanted !== undefined) return <Waiting>Loading…</Waiting>;
  const first = workspaces.data?.[0];
  if (first !== undefined) return <Navigate to="/$workspace" params={{ workspace: first.name }} replace />;
  return (
    <main className="centred">
      <title>Osmosis</title>
      <h1>No workspace yet</h1>
      <p>
        A workspace holds a task and its agent in a Git repository, with its data sets, runs and models. Make
        one with the command line; this page goes on by itself.
      </p>
      <pre>osmosis workspace create my-team</pre>
      <p>Or walk through everything by example, from a data set to a better model:</p>
      <pre>osmosis quickstart</pre>
    </main>
  );
}

export function WorkspaceFrame(): ReactElement {
  const { workspace: name } = useParams({ from: "/page/$workspace" });
  const workspaces = useWorkspaces();
  const workspace = workspaces.data?.find((one) => one.name === name);
  const place = useMemo(
    () => (workspace === undefined ? undefined : { workspace, client: clientOf(workspace) }),
    [workspace],
  );
  if (place !== undefined) {
    return (
      <PlaceContext value={place}>
        <Outlet />
      </PlaceContext>
    );
  }
  // The list may be older than the workspace.
  return workspaces.isFetching ? <Waiting>Loading…</Waiting> : <MissingPage />;
}

export function MissingPage(): ReactElement {
  return (
    <main className="centred">
      <title>Nothing here · Osmosis</title>
      <h1>Nothing here</h1>
      <p>This page does not exist, or you are not a member of its workspace.</p>
      <p>
        <Link to="/">Go to your workspace</Link>
      </p>
    </main>
  );
}

/** Shown in place of a page that has a bug; the others go on. */
export function CrashPage({ error }: { readonly error: unknown }): ReactElement {
  return (
    <main className="centred">
      <title>Something went wrong · Osmosis</title>
      <h1>Something went wrong</h1>
      <p>This page could not be shown. Loading it again may help; the rest of the dashboard works.</p>
      <pre dir="auto">{errorMessage(error)}</pre>
      <button type="button" onClick={() => window.location.reload()}>
        Load again
      </button>
    </main>
  );
}
