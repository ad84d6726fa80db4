import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type { ReactElement } from "react";

/** What went wrong, and what to do next. */
export function Problem({ error }: { readonly error: unknown }): ReactElement {
  return (
    <div role="alert" className="problem">
      <p>{errorMessage(error)}</p>
      {error instanceof OsmosisError && error.hint !== undefined ? <p>{error.hint}</p> : null}
    </div>
  );
}
