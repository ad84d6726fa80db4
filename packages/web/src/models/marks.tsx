import type { CheckpointMark } from "@osmosis/protocol";
import type { ReactElement } from "react";

const MEANING: Readonly<Record<CheckpointMark, string>> = {
  best: "highest validation reward of its run; without validation, highest training reward",
  last: "latest step of its run",
};

/** What distinguishes a checkpoint among those of its run. */
export function Marks(props: { readonly of: readonly CheckpointMark[] }): ReactElement {
  return (
    <>
      {props.of.map((mark) => (
        <span key={mark}>
          {" "}
          <small className="quiet" title={MEANING[mark]}>
            {mark}
          </small>
        </span>
      ))}
    </>
  );
}
