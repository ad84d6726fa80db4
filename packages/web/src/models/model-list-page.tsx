import { modelRoutes } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatBytes } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Age } from "../parts/age.tsx";
import { Empty } from "../parts/empty.tsx";
import { PAGE_SIZE, Pager } from "../parts/pager.tsx";
import { Unanswered } from "../problem.tsx";
import { CheckpointReward } from "./checkpoint-reward.tsx";
import { Marks } from "./marks.tsx";

/** What a run may start from: checkpoints of training runs, and base models. */
export function ModelListPage(): ReactElement {
  return (
    <main>
      <title>Models · Osmosis</title>
      <h1>Models</h1>
      <section aria-labelledby="trained-heading">
        <h2 id="trained-heading">Checkpoints of training runs</h2>
        <TrainedModels />
      </section>
      <section aria-labelledby="base-heading">
        <h2 id="base-heading">Base models</h2>
        <BaseModels />
      </section>
    </main>
  );
}

function TrainedModels(): ReactElement {
  const { workspace, client } = usePlace();
  const { offset = 0 } = useSearch({ from: "/page/$workspace/models" });
  const navigate = useNavigate();
  const answer = useQuery({
    queryKey: [workspace.id, "trained-models", offset],
    queryFn: ({ signal }) =>
      client.call(modelRoutes.trained, { query: { limit: PAGE_SIZE, offset }, signal }),
    placeholderData: (before) => before,
  });
  if (answer.data === undefined) return <Unanswered query={answer} />;
  const { models, total_count: total } = answer.data;
  if (total === 0) {
    return (
      <Empty
        what="No checkpoint yet: a training run makes them."
        where="In a clone of the workspace:"
        command="osmosis train submit configs/training/multiply-local-openai.toml"
      />
    );
  }
  return (
    <>
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th className="wide-only">Base model</th>
            <th className="number">Step</th>
            <th className="number">Reward</th>
            <th className="number wide-only">Size</th>
            <th className="number wide-only">Made</th>
          </tr>
        </thead>
        <tbody>
          {models.map((model) => (
            <tr key={model.id}>
              <td>
                <Link
                  to="/$workspace/models/$model"
                  params={{ workspace: workspace.name, model: model.model_name }}
                >
                  <bdi>{model.model_name}</bdi>
                </Link>
                <Marks of={model.marks} />
              </td>
              <td className="wide-only">
                <bdi>{model.base_model}</bdi>
              </td>
              <td className="number">{model.checkpoint_step}</td>
              <td className="number">
                <CheckpointReward of={model} />
              </td>
              <td className="number wide-only">{formatBytes(model.size_bytes)}</td>
              <td className="number wide-only">
                <Age at={model.created_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <Pager
        offset={offset}
        shown={models.length}
        total={total}
        onMove={(next) => void navigate({ to: ".", search: { offset: next } })}
      />
    </>
  );
}

function BaseModels(): ReactElement {
  const { workspace, client } = usePlace();
  const answer = useQuery({
    queryKey: [workspace.id, "base-models"],
    queryFn: ({ signal }) => client.call(modelRoutes.base, { query: { limit: PAGE_SIZE }, signal }),
  });
  if (answer.data === undefined) return <Unanswered query={answer} />;
  const { models } = answer.data;
  if (models.length === 0) return <p className="empty">The platform has no base model.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th>Name</th>
          <th className="number">Parameters</th>
        </tr>
      </thead>
      <tbody>
        {models.map((model) => (
          <tr key={model.id}>
            <td>
              <bdi>{model.model_name}</bdi>
            </td>
            <td className="number">
              {model.parameters?.toLocaleString("en") ?? <span className="quiet">no weights here</span>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
