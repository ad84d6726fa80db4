import { exportStreams, fillPath, type ExportQuery } from "@osmosis/protocol";
import type { ReactElement } from "react";
import { usePlace } from "../frame.tsx";

/** Everything that a run recorded, as files; the browser writes them as they come. */
export function ExportLinks(props: {
  readonly kind: "training" | "eval";
  readonly run: string;
}): ReactElement {
  const { workspace } = usePlace();
  const path = fillPath(
    props.kind === "training" ? exportStreams.trainingFile : exportStreams.evaluationFile,
    {
      workspace: workspace.name,
      name: props.run,
    },
  );
  const whats: readonly ExportQuery["what"][] =
    props.kind === "training" ? ["metrics", "rollouts"] : ["rollouts"];
  return (
    <p className="quiet">
      Download{" "}
      {whats.map((what, index) => (
        <span key={what}>
          {index === 0 ? "" : ", "}
          {what} as{" "}
          <a href={`${path}?what=${what}&format=csv`} download>
            CSV
          </a>{" "}
          or{" "}
          <a href={`${path}?what=${what}&format=jsonl`} download>
            JSONL
          </a>
        </span>
      ))}
    </p>
  );
}
