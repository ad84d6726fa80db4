import { datasetRoutes } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatBytes } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Age } from "../parts/age.tsx";
import { Empty } from "../parts/empty.tsx";
import { PAGE_SIZE, Pager } from "../parts/pager.tsx";
import { Status } from "../parts/status.tsx";
import { LIVE_MS } from "../platform.ts";
import { Unanswered } from "../problem.tsx";

/** The data sets of the workspace. */
export function DatasetListPage(): ReactElement {
  const { workspace, client } = usePlace();
  const { offset = 0 } = useSearch({ from: "/page/$workspace/datasets" });
  const navigate = useNavigate();
  const answer = useQuery({
    queryKey: [workspace.id, "datasets", offset],
    queryFn: ({ signal }) => client.call(datasetRoutes.list, { query: { limit: PAGE_SIZE, offset }, signal }),
    placeholderData: (before) => before,
    refetchInterval: LIVE_MS * 4,
  });
  return (
    <main>
      <title>Data sets · Osmosis</title>
      <h1>Data sets</h1>
      {answer.data === undefined ? (
        <Unanswered query={answer} />
      ) : answer.data.total_count === 0 ? (
        <Empty
          what="No data set yet."
          where="In a clone of the workspace:"
          command="osmosis dataset upload data/multiply.jsonl"
        />
      ) : (
        <>
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>Status</th>
                <th className="number">Rows</th>
                <th className="number wide-only">Size</th>
                <th className="number wide-only">Uploaded</th>
              </tr>
            </thead>
            <tbody>
              {answer.data.datasets.map((dataset) => (
                <tr key={dataset.id}>
                  <td>
                    <Link
                      to="/$workspace/datasets/$dataset"
                      params={{ workspace: workspace.name, dataset: dataset.name }}
                    >
                      <bdi>{dataset.name}</bdi>
                    </Link>
                  </td>
                  <td>
                    <Status value={dataset.status} />
                  </td>
                  <td className="number">{dataset.row_count?.toLocaleString("en") ?? "–"}</td>
                  <td className="number wide-only">{formatBytes(dataset.file_size)}</td>
                  <td className="number wide-only">
                    <Age at={dataset.created_at} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <Pager
            offset={offset}
            shown={answer.data.datasets.length}
            total={answer.data.total_count}
            onMove={(next) => void navigate({ to: ".", search: { offset: next } })}
          />
        </>
      )}
    </main>
  );
}
