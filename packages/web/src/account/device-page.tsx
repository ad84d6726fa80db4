import { authRoutes } from "@osmosis/protocol";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { useState, type ReactElement } from "react";
import { person } from "../platform.ts";
import { Problem } from "../problem.tsx";

/** Lets the person approve a command line that wants to sign in, after comparing the code. */
export function DevicePage(): ReactElement {
  const { user_code: fromLink } = useSearch({ from: "/page/device" });
  const [typed, setTyped] = useState("");
  const [code, setCode] = useState(fromLink);
  if (code !== undefined) return <Approval code={code} />;
  return (
    <main className="centred">
      <h1>Sign in a command line</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setCode(typed.trim().toUpperCase());
        }}
      >
        <label>
          Code that the command line shows{" "}
          <input value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <button type="submit" disabled={typed.trim() === ""}>
          Continue
        </button>
      </form>
    </main>
  );
}

function Approval({ code }: { readonly code: string }): ReactElement {
  const params = { user_code: code };
  const pending = useQuery({
    queryKey: ["device", code],
    queryFn: ({ signal }) => person.call(authRoutes.pendingDevice, { params, signal }),
  });
  const decide = useMutation({
    mutationFn: (approve: boolean) => person.call(authRoutes.approveDevice, { params, body: { approve } }),
  });
  if (pending.error !== null) return <Problem error={pending.error} />;
  if (decide.data !== undefined) {
    return (
      <main className="centred">
        <h1>{decide.data.status === "approved" ? "Signed in" : "Refused"}</h1>
        <p>You can close this page and go back to the command line.</p>
      </main>
    );
  }
  return (
    <main className="centred">
      <h1>Sign in a command line</h1>
      <p>
        <strong>{pending.data?.device_name ?? "…"}</strong> wants to act in your name. Does it show this code?
      </p>
      <p className="code">{code}</p>
      {decide.error === null ? null : <Problem error={decide.error} />}
      <button
        type="button"
        disabled={!pending.isSuccess || decide.isPending}
        onClick={() => decide.mutate(true)}
      >
        Approve
      </button>{" "}
      <button
        type="button"
        className="quiet"
        disabled={!pending.isSuccess || decide.isPending}
        onClick={() => decide.mutate(false)}
      >
        Refuse
      </button>
    </main>
  );
}
