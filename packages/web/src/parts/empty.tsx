import type { ReactElement } from "react";

/** Stands where a list will be: what is missing, and the command that makes the first one. */
export function Empty(props: {
  readonly what: string;
  readonly where: string;
  readonly command: string;
}): ReactElement {
  return (
    <div className="empty">
      <p>
        {props.what} {props.where}
      </p>
      <pre>{props.command}</pre>
    </div>
  );
}
