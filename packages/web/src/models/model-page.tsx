import { modelRoutes } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatBytes } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Age } from "../parts/age.tsx";
import { Fact, Facts } from "../parts/facts.tsx";
import { Unanswered } from "../problem.tsx";
import { CheckpointReward } from "./checkpoint-reward.tsx";
import { Marks } from "./marks.tsx";

/** The links to the files live for 15 minutes; they are asked for anew before that. */
const LINKS_MS = 10 * 60 * 1000;

/** A checkpoint: where it comes from, how to use it, and its files. */
export function ModelPage(): ReactElement {
  const { workspace, client } = usePlace();
  const { model: name } = useParams({ from: "/page/$workspace/models/$model" });
  const answer = useQuery({
    queryKey: [workspace.id, "model", name],
    queryFn: ({ signal }) => client.call(modelRoutes.get, { params: { name }, signal }),
    refetchInterval: LINKS_MS,
  });
  const params = { workspace: workspace.name };
  const model = answer.data;
  return (
    <main>
      <title>{`${name} · Osmosis`}</title>
      <p className="crumbs">
        <Link to="/$workspace/models" params={params}>
          Models
        </Link>
      </p>
      {model === undefined ? (
        <Unanswered query={answer} />
      ) : (
        <>
          <h1>
            <bdi>{model.model_name}</bdi>
            <Marks of={model.marks} />
          </h1>
          <p className="quiet">
            Step {model.checkpoint_step} of{" "}
            <Link to="/$workspace/training-runs/$run" params={{ ...params, run: model.training_run_name }}>
              <bdi>{model.training_run_name}</bdi>
            </Link>
            , kept <Age at={model.created_at} />
          </p>
          <Facts>
            <Fact name="Base model">
              <bdi>{model.base_model}</bdi>
            </Fact>
            <Fact name="Method">{model.method === "lora" ? "LoRA adapter" : "all weights"}</Fact>
            <Fact name="Reward">
              <CheckpointReward of={model} />
            </Fact>
            <Fact name="Size">{formatBytes(model.size_bytes)}</Fact>
          </Facts>
          {model.files_removed_at === null ? (
            <>
              <h2>Measure it</h2>
              <p>In the configuration of an evaluation:</p>
              <pre>{`[experiment]\nmodel_path = ${JSON.stringify(model.model_name)}`}</pre>
              <h2>Files</h2>
              <p>
                All of them, checked: <code>osmosis model download {model.model_name}</code>
              </p>
            </>
          ) : (
            <p>
              Its files were removed <Age at={model.files_removed_at} />, as <code>keep_checkpoints</code> of
              the run asks for.
            </p>
          )}
          <table className="narrow">
            <tbody>
              {model.files.map((file) => (
                <tr key={file.name}>
                  <td>
                    <a href={file.presigned_url} download={file.name}>
                      {file.name}
                    </a>
                  </td>
                  <td className="number">{formatBytes(file.size_bytes)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      )}
    </main>
  );
}
