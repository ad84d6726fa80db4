import { useEffect, useState, type ReactElement } from "react";
import { formatAge } from "../format.ts";

/** How long ago something was; the exact time in this place's zone appears under the pointer. */
export function Age({ at }: { readonly at: string }): ReactElement {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), 20_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <time dateTime={at} title={new Date(at).toLocaleString("en-GB")}>
      {formatAge(at, now)}
    </time>
  );
}
