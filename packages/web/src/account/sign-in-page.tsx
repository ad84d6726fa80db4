import { useSearch } from "@tanstack/react-router";
import type { ReactElement } from "react";

/** Shown to a browser that nobody has signed in: the way in is the link that the command line prints. */
export function SignInPage(): ReactElement {
  const { error } = useSearch({ from: "/sign-in" });
  return (
    <main className="centred">
      <h1>Sign in</h1>
      {error === undefined ? null : (
        <p role="alert" className="problem">
          That link cannot be used any more: each one is good for a single sign-in, for a short time.
        </p>
      )}
      <p>
        Open the link that <code>osmosis up</code> prints. For a new one run:
      </p>
      <pre>osmosis auth link</pre>
    </main>
  );
}
