import { datasetRoutes, type Dataset } from "@osmosis/protocol";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatBytes } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Age } from "../parts/age.tsx";
import { Fact, Facts } from "../parts/facts.tsx";
import { Status } from "../parts/status.tsx";
import { LIVE_MS } from "../platform.ts";
import { Problem, Unanswered } from "../problem.tsx";

/** A data set with its first rows. */
export function DatasetPage(): ReactElement {
  const { workspace, client } = usePlace();
  const { dataset: name } = useParams({ from: "/page/$workspace/datasets/$dataset" });
  const answer = useQuery({
    queryKey: [workspace.id, "dataset", name],
    queryFn: ({ signal }) => client.call(datasetRoutes.get, { params: { name }, signal }),
    refetchInterval: ({ state }) => (isSettled(state.data?.status) ? false : LIVE_MS),
  });
  return (
    <main>
      <title>{`${name} · Osmosis`}</title>
      <p className="crumbs">
        <Link to="/$workspace/datasets" params={{ workspace: workspace.name }}>
          Data sets
        </Link>
      </p>
      {answer.data === undefined ? <Unanswered query={answer} /> : <Content dataset={answer.data} />}
    </main>
  );
}

function isSettled(status: Dataset["status"] | undefined): boolean {
  return status === "uploaded" || status === "error" || status === "cancelled";
}

function Content({ dataset }: { readonly dataset: Dataset }): ReactElement {
  const rows = dataset.data_preview ?? [];
  return (
    <>
      <div className="title">
        <h1>
          <bdi>{dataset.name}</bdi>
        </h1>
        <Status value={dataset.status} />
        {dataset.status === "uploaded" ? <Download name={dataset.name} /> : null}
      </div>
      <p className="quiet">
        uploaded <Age at={dataset.created_at} />
        {dataset.creator_name === null ? null : (
          <>
            {" "}
            by <bdi>{dataset.creator_name}</bdi>
          </>
        )}
      </p>
      {dataset.error === null ? null : (
        <pre role="alert" className="problem" dir="auto">
          {dataset.error}
        </pre>
      )}
      <Facts>
        <Fact name="Rows">{dataset.row_count?.toLocaleString("en") ?? "–"}</Fact>
        <Fact name="Format">{dataset.file_format}</Fact>
        <Fact name="Size">{formatBytes(dataset.file_size)}</Fact>
      </Facts>
      {rows.length === 0 ? null : (
        <>
          <h2>First rows</h2>
          <Preview rows={rows} />
        </>
      )}
    </>
  );
}

function Download({ name }: { readonly name: string }): ReactElement {
  const { client } = usePlace();
  const download = useMutation({
    mutationFn: () => client.call(datasetRoutes.download, { params: { name } }),
    onSuccess: ({ presigned_url: url, file_name: fileName }) => {
      const link = document.createElement("a");
      link.href = url;
      link.download = fileName;
      link.click();
    },
  });
  return (
    <>
      <button type="button" className="quiet" disabled={download.isPending} onClick={() => download.mutate()}>
        Download
      </button>
      {download.error === null ? null : <Problem error={download.error} />}
    </>
  );
}

function Preview({ rows }: { readonly rows: readonly Readonly<Record<string, unknown>>[] }): ReactElement {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return (
    <div className="scroll">
      <table className="preview">
        <thead>
          <tr>
            <th className="number">#</th>
            {columns.map((column) => (
              <th key={column}>
                <code>{column}</code>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            // Rows of a file have no other identity than their place in it.
            <tr key={index}>
              <td className="number quiet">{index}</td>
              {columns.map((column) => (
                <td key={column}>
                  <div className="cell" dir="auto">
                    {textOf(row[column])}
                  </div>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function textOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  return (typeof value === "string" ? value : JSON.stringify(value)).slice(0, 2000);
}
