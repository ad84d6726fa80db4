import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type { ReactElement, ReactNode } from "react";
import { isOutage } from "./outage.ts";

/** What went wrong, and what to do next. */
export function Problem({ error }: { readonly error: unknown }): ReactElement {
  return (
    <div role="alert" className="problem">
      <p dir="auto">{errorMessage(error)}</p>
      {error instanceof OsmosisError && error.hint !== undefined ? (
        <p className="quiet">
          <Prose text={error.hint} />
        </p>
      ) : null}
    </div>
  );
}

/** Text in which `…` marks what is typed. */
export function Prose({ text }: { readonly text: string }): ReactNode {
  // Odd parts stood between backticks.
  return text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part));
}

/** What stands where an answer will be: a short wait, or why there is none. */
export function Unanswered(props: {
  readonly query: { readonly error: unknown; readonly failureReason: unknown };
}): ReactElement {
  const { error, failureReason } = props.query;
  if (error !== null) return <Problem error={error} />;
  return <Waiting>{isOutage(failureReason) ? "Waiting for the platform…" : "Loading…"}</Waiting>;
}

/** Says that something comes; appears only when it takes a moment, so that quick answers do not flicker. */
export function Waiting({ children }: { readonly children: ReactNode }): ReactElement {
  return (
    <p role="status" className="waiting">
      {children}
    </p>
  );
}
