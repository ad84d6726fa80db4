import { datasetRoutes } from "@osmosis/protocol";
import type { ListOptions, LogOptions } from "../commands/options.ts";
import type { Context } from "../context.ts";
import { formatBytes, formatCount, formatTime } from "../output/format.ts";
import type { DetailResult, ListResult, Table } from "../output/result.ts";
import { logList } from "../platform/log-list.ts";
import { collectPages } from "../platform/pages.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { datasetRow, datasetTable } from "./row.ts";

export async function listDatasets(context: Context, options: ListOptions): Promise<ListResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const { items, page } = await collectPages(options, async (query) => {
    const { datasets, ...rest } = await client.call(datasetRoutes.list, { query });
    return { items: datasets, ...rest };
  });
  return {
    kind: "list",
    items: items.map(datasetRow),
    page,
    table: datasetTable(items),
    empty: "No data sets yet. Bring one with `osmosis dataset upload FILE`.",
    extras: workspaceExtras(workspace),
  };
}

export async function datasetInfo(context: Context, name: string): Promise<DetailResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const dataset = await client.call(datasetRoutes.get, { params: { name } });
  return {
    kind: "detail",
    data: datasetRow(dataset),
    title: dataset.file_name,
    fields: [
      ["Status", dataset.error === null ? dataset.status : `${dataset.status}: ${dataset.error}`],
      ["Rows", formatCount(dataset.row_count)],
      ["Format", dataset.file_format],
      ["Size", formatBytes(dataset.file_size)],
      [
        "Created",
        `${formatTime(dataset.created_at)}${dataset.creator_name ? ` by ${dataset.creator_name}` : ""}`,
      ],
      ["View", dataset.platform_url],
    ],
    extras: workspaceExtras(workspace),
  };
}

/** The first rows, as the platform read them. */
export async function datasetPreview(
  context: Context,
  name: string,
  options: { readonly rows: number },
): Promise<DetailResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const dataset = await client.call(datasetRoutes.get, { params: { name } });
  const rows = (dataset.data_preview ?? []).slice(0, options.rows);
  const available = dataset.data_preview !== null;
  return {
    kind: "detail",
    data: {
      dataset: datasetRow(dataset),
      rows,
      requested_rows: options.rows,
      returned_rows: rows.length,
      available,
      ...(available ? {} : { message: `The data set is ${dataset.status}; its rows are not read yet.` }),
    },
    title: dataset.file_name,
    fields: [["Rows", `${rows.length} of ${formatCount(dataset.row_count)}`]],
    tables: rows.length === 0 ? [] : [{ title: "First rows", table: previewTable(rows) }],
    extras: workspaceExtras(workspace),
  };
}

export async function datasetLogs(context: Context, name: string, options: LogOptions): Promise<ListResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const { limit, cursor } = options;
  const page = await client.call(datasetRoutes.logs, {
    params: { name },
    query: { limit, direction: "older", ...(cursor === undefined ? {} : { cursor }) },
  });
  return logList(page, workspaceExtras(workspace));
}

const CELL_LENGTH = 48;

function previewTable(rows: readonly Record<string, unknown>[]): Table {
  const headers = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return {
    headers,
    rows: rows.map((row) =>
      headers.map((header) => {
        const value = row[header];
        const text = typeof value === "string" ? value : JSON.stringify(value ?? null);
        return text.length <= CELL_LENGTH ? text : `${text.slice(0, CELL_LENGTH - 1)}…`;
      }),
    ),
  };
}
