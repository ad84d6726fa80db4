import { trainingRoutes } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { usePlace } from "../frame.tsx";
import { CheckpointReward } from "../models/checkpoint-reward.tsx";
import { Marks } from "../models/marks.tsx";
import { Age } from "../parts/age.tsx";
import { LIVE_MS } from "../platform.ts";
import { Unanswered } from "../problem.tsx";

/** The weights that a training run kept, each a model of its own. */
export function Checkpoints(props: { readonly run: string; readonly live: boolean }): ReactElement {
  const { workspace, client } = usePlace();
  const answer = useQuery({
    queryKey: [workspace.id, "training", props.run, "checkpoints", props.live],
    queryFn: ({ signal }) => client.call(trainingRoutes.checkpoints, { params: { name: props.run }, signal }),
    placeholderData: (before) => before,
    refetchInterval: props.live ? LIVE_MS * 2 : false,
  });
  if (answer.data === undefined) return <Unanswered query={answer} />;
  const { checkpoints } = answer.data;
  if (checkpoints.length === 0) {
    return (
      <p className="empty">
        {props.live
          ? "No checkpoint yet. `checkpoint_save_freq` says how often one is kept; the last step always makes one."
          : "The run kept no checkpoint."}
      </p>
    );
  }
  return (
    <>
      <table>
        <thead>
          <tr>
            <th>Checkpoint</th>
            <th className="number">Step</th>
            <th className="number">Reward</th>
            <th className="number">Made</th>
          </tr>
        </thead>
        <tbody>
          {checkpoints.toReversed().map((one) => (
            <tr key={one.id}>
              <td>
                <Link
                  to="/$workspace/models/$model"
                  params={{ workspace: workspace.name, model: one.checkpoint_name }}
                >
                  <bdi>{one.checkpoint_name}</bdi>
                </Link>
                <Marks of={one.marks} />
                {one.status === "removed" && <span className="quiet"> files removed</span>}
              </td>
              <td className="number">{one.checkpoint_step}</td>
              <td className="number">
                <CheckpointReward of={one} />
              </td>
              <td className="number">
                <Age at={one.created_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="quiet">
        To measure one, write its name as <code>model_path</code> of an evaluation's configuration.
      </p>
    </>
  );
}
