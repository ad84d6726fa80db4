import type { ReactElement } from "react";

/** How far something has come, as a bar and in words. */
export function Meter(props: {
  readonly label: string;
  readonly done: number;
  readonly total: number | null;
  readonly children: string;
}): ReactElement {
  return (
    <div className="meter">
      <progress
        value={Math.min(props.done, props.total ?? 0)}
        max={Math.max(props.total ?? 1, 1)}
        aria-label={props.label}
      />
      <span>{props.children}</span>
    </div>
  );
}
