import { useQueryClient } from "@tanstack/react-query";
import { useRouter, useSearch } from "@tanstack/react-router";
import { useEffect, type ReactElement } from "react";
import { SESSION_KEY, useSession } from "../platform.ts";
import { localPath } from "../search.ts";
import { rememberWantedPath } from "./wanted-path.ts";

/** Shown to a browser that nobody has signed in: the way in is the link that the command line prints. */
export function SignInPage(): ReactElement {
  const { error, to } = useSearch({ from: "/sign-in" });
  const wanted = localPath(to);
  const session = useSession({ watch: true });
  // An answer from before the session ended does not count.
  const isSignedIn = session.isSuccess && session.isFetchedAfterMount;
  const { history } = useRouter();
  const queries = useQueryClient();
  useEffect(() => {
    if (wanted !== undefined) rememberWantedPath(wanted);
  }, [wanted]);
  useEffect(() => {
    // What was loaded for the person before is not for the next one.
    queries.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== SESSION_KEY[0] });
  }, [queries]);
  useEffect(() => {
    if (isSignedIn) history.replace(wanted ?? "/");
  }, [isSignedIn, wanted, history]);
  return (
    <main className="centred">
      <title>Sign in · Osmosis</title>
      <p className="brand">osmosis</p>
      <h1>Sign in</h1>
      {error === undefined ? null : (
        <p role="alert" className="problem">
          That link cannot be used any more: each one is good for a single sign-in, within 30 minutes.
        </p>
      )}
      <p>
        Open the sign-in link that the platform prints when it starts. This page goes on by itself once you
        are signed in.
      </p>
      <h2>No link, or it was used?</h2>
      <p>On the machine that runs the platform, this prints a fresh one:</p>
      <pre>osmosis auth login --local</pre>
    </main>
  );
}
