import type { ReactElement } from "react";

/** As many as the platform gives at once. */
export const PAGE_SIZE = 50;

/** Walks through a list in pages. It stays away while everything fits on the first one. */
export function Pager(props: {
  /** Of the first item that is shown. */
  readonly offset: number;
  readonly shown: number;
  readonly total: number;
  readonly onMove: (offset: number) => void;
}): ReactElement | null {
  const { offset, shown, total, onMove } = props;
  if (total <= PAGE_SIZE && offset === 0) return null;
  const end = offset + shown;
  return (
    <nav className="pager" aria-label="Pages">
      <button
        type="button"
        className="quiet"
        disabled={offset === 0}
        onClick={() => onMove(Math.max(0, offset - PAGE_SIZE))}
      >
        Previous
      </button>
      <span>
        {shown === 0 ? "nothing" : `${(offset + 1).toLocaleString("en")} to ${end.toLocaleString("en")}`} of{" "}
        {total.toLocaleString("en")}
      </span>
      <button
        type="button"
        className="quiet"
        disabled={end >= total}
        onClick={() => onMove(offset + PAGE_SIZE)}
      >
        Next
      </button>
    </nav>
  );
}
