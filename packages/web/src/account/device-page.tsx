import { authRoutes } from "@osmosis/protocol";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState, type ReactElement } from "react";
import { person } from "../platform.ts";
import { Problem, Unanswered } from "../problem.tsx";

/** Lets the person approve a command line that wants to sign in, after comparing the code. */
export function DevicePage(): ReactElement {
  const { user_code: code } = useSearch({ from: "/page/device" });
  return (
    <main className="centred">
      <title>Sign in a command line · Osmosis</title>
      <h1>Sign in a command line</h1>
      {code === undefined || code === "" ? <CodeForm /> : <Approval key={code} code={code} />}
    </main>
  );
}

function CodeForm(): ReactElement {
  const [typed, setTyped] = useState("");
  const navigate = useNavigate();
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        void navigate({ to: "/device", search: { user_code: typed.trim().toUpperCase() } });
      }}
    >
      <label htmlFor="code">Code that the command line shows</label>
      <input
        id="code"
        className="code"
        placeholder="XXXX-XXXX"
        autoComplete="off"
        autoFocus
        maxLength={40}
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
      />
      <button type="submit" disabled={typed.trim() === ""}>
        Continue
      </button>
    </form>
  );
}

function Approval({ code }: { readonly code: string }): ReactElement {
  const navigate = useNavigate();
  const params = { user_code: code };
  const pending = useQuery({
    queryKey: ["device", code],
    queryFn: ({ signal }) => person.call(authRoutes.pendingDevice, { params, signal }),
    // After the decision the platform knows the code no more; that is no news.
    refetchOnWindowFocus: false,
  });
  const decide = useMutation({
    mutationFn: (approve: boolean) => person.call(authRoutes.approveDevice, { params, body: { approve } }),
  });
  if (decide.data !== undefined) {
    return (
      <p role="status" className="notice">
        {decide.data.status === "approved"
          ? "The command line is signed in. You can close this page and go back to it."
          : "Refused. The command line was not signed in; you can close this page."}
      </p>
    );
  }
  if (pending.data === undefined) {
    return (
      <>
        <Unanswered query={pending} />
        {pending.error === null ? null : (
          <button
            type="button"
            className="quiet"
            onClick={() => void navigate({ to: "/device", search: {} })}
          >
            Enter another code
          </button>
        )}
      </>
    );
  }
  return (
    <>
      <p>
        <strong>
          <bdi>{pending.data.device_name}</bdi>
        </strong>{" "}
        wants to act in your name. Approve it only when you started it yourself, and it shows this code:
      </p>
      <p className="code">{pending.data.user_code}</p>
      {decide.error === null ? null : <Problem error={decide.error} />}
      <div className="actions">
        <button type="button" disabled={decide.isPending} onClick={() => decide.mutate(true)}>
          Approve
        </button>
        <button
          type="button"
          className="quiet"
          disabled={decide.isPending}
          onClick={() => decide.mutate(false)}
        >
          Refuse
        </button>
      </div>
    </>
  );
}
