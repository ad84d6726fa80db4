import { useState, type ReactElement } from "react";
import { formatBytes } from "../format.ts";

/** More than this makes a page slow and hides what comes after it. */
const SHOWN = 8000;

/** Text exactly as it is, in its own direction. Of very long text the beginning is shown until somebody wants all. */
export function LongText({
  text,
  className,
}: {
  readonly text: string;
  readonly className: string;
}): ReactElement {
  const [isWhole, setWhole] = useState(false);
  const isCut = !isWhole && text.length > SHOWN * 1.5;
  return (
    <>
      <pre className={className} dir="auto">
        {isCut ? `${text.slice(0, SHOWN)}…` : text}
      </pre>
      {isCut ? (
        <button type="button" className="quiet small" onClick={() => setWhole(true)}>
          Show all ({formatBytes(text.length)})
        </button>
      ) : null}
    </>
  );
}
