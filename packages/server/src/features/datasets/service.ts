import { randomUUID } from "node:crypto";
import { checkDatasetSize } from "@osmosis/controller";
import { OsmosisError, type Dataset, type datasetRoutes } from "@osmosis/protocol";
import { sql, type Kysely } from "kysely";
import type { z } from "zod";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import type { Bell } from "../../queue/bell.ts";
import { DATASET_QUEUE } from "../../queue/job-types.ts";
import type { WorkspaceAccess } from "../workspaces/service.ts";
import type { DatasetVersionStatus } from "./tables.ts";
import { assemble, partKeys, sourceKey, uploadOf, MULTIPART_FROM_BYTES, PART_BYTES } from "./upload.ts";

/** An upload that was begun so long ago no longer keeps its name from others. */
const UPLOAD_MINUTES = 60;

/** A version of a data set that runs can use. */
export type UsableDataset = { id: string; name: string; versionId: string; rowCount: number };

export type Datasets = ReturnType<typeof createDatasets>;

/**
 * Data sets. Each upload is a version, and goes
 *
 *     uploading → processing → uploaded
 *         ↓            ↓
 *     cancelled      error
 *
 * A data set shows its newest version that was not cancelled. Older versions stay for the runs that began with them.
 */
export function createDatasets(
  parts: Pick<Platform, "db" | "queue" | "blobs" | "blobUrls" | "now" | "url"> & { readonly bell: Bell },
) {
  const { db, queue, blobs, blobUrls, now, bell } = parts;

  const viewOf = (row: Shown, workspace: WorkspaceAccess): Dataset => ({
    id: row.id,
    name: row.name,
    file_name: row.name,
    file_size: row.size_bytes,
    status: row.status,
    error: row.error,
    data_preview: row.preview === null ? null : [...row.preview],
    file_format: row.format,
    row_count: row.row_count,
    creator_name: row.creator_name,
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
    platform_url: `${parts.url}/${workspace.name}/datasets/${encodeURIComponent(row.name)}`,
  });

  /** By name; by id where no name fits. */
  async function find(workspaceId: string, nameOrId: string): Promise<Shown | undefined> {
    const rows = await shown(db)
      .where("datasets.workspace_id", "=", workspaceId)
      .where((by) => by.or([by("datasets.name", "=", nameOrId), by("datasets.id", "=", nameOrId)]))
      .execute();
    return rows.find((row) => row.name === nameOrId) ?? rows[0];
  }

  async function get(workspace: WorkspaceAccess, nameOrId: string): Promise<Shown> {
    const row = await find(workspace.id, nameOrId);
    if (row !== undefined) return row;
    throw new OsmosisError(
      "NOT_FOUND",
      `There is no data set ${nameOrId} in the workspace ${workspace.name}.`,
      {
        hint: "See `osmosis dataset list` for the names.",
      },
    );
  }

  return {
    async list(
      workspace: WorkspaceAccess,
      page: { limit: number; offset: number },
    ): Promise<{ items: Dataset[]; total: number }> {
      const { total } = await db
        .selectFrom("datasets")
        .select(sql<number>`count(*)::int`.as("total"))
        .where("workspace_id", "=", workspace.id)
        .executeTakeFirstOrThrow();
      const rows = await shown(db)
        .where("datasets.workspace_id", "=", workspace.id)
        .orderBy("datasets.created_at", "desc")
        .orderBy("datasets.id")
        .limit(page.limit)
        .offset(page.offset)
        .execute();
      return { items: rows.map((row) => viewOf(row, workspace)), total };
    },

    /** @throws {OsmosisError} NOT_FOUND. */
    async get(workspace: WorkspaceAccess, nameOrId: string): Promise<Dataset> {
      return viewOf(await get(workspace, nameOrId), workspace);
    },

    /**
     * Begins an upload.
     *
     * @throws {OsmosisError} CONFLICT with `existing_dataset_id` when the name is taken, also by another upload that is
     * under way, and `overwrite_dataset_id` does not name it; VALIDATION for a size or a name that cannot be.
     */
    async create(
      workspace: WorkspaceAccess,
      userId: string,
      body: z.output<NonNullable<typeof datasetRoutes.create.body>>,
    ): Promise<z.input<typeof datasetRoutes.create.response>> {
      checkDatasetSize(`${body.file_name}.${body.extension}`, body.file_size);
      const name = checkName(body.file_name);
      const versionId = randomUUID();
      const datasetId = await db.transaction().execute(async (transaction) => {
        const { id, isNew } = await lockDataset(transaction, workspace.id, name);
        const number = isNew
          ? 1
          : await nextVersion(transaction, { id, name, overwrite: body.overwrite_dataset_id });
        await transaction
          .insertInto("dataset_versions")
          .values({
            id: versionId,
            dataset_id: id,
            number,
            status: "uploading",
            format: body.extension,
            size_bytes: body.file_size,
            part_size: body.file_size >= MULTIPART_FROM_BYTES ? PART_BYTES : null,
            row_count: null,
            preview: null,
            error: null,
            created_by: userId,
            created_at: now(),
            updated_at: now(),
          })
          .execute();
        return id;
      });
      const row = await get(workspace, datasetId);
      return { ...viewOf(row, workspace), upload: uploadOf(row, blobUrls) };
    },

    /**
     * Ends an upload and queues its processing. Called again it answers how far that is.
     *
     * @throws {OsmosisError} VALIDATION when bytes are missing; CONFLICT when the upload was aborted; NOT_FOUND.
     */
    async complete(workspace: WorkspaceAccess, id: string): Promise<Dataset> {
      const row = await get(workspace, id);
      if (row.status === "cancelled") {
        throw new OsmosisError("CONFLICT", `The upload of ${row.name} was aborted.`, {
          hint: "Upload the file again.",
        });
      }
      if (row.status !== "uploading") return viewOf(row, workspace);
      try {
        await assemble(row, blobs);
      } catch (error) {
        // Another call may have been faster, and have deleted the parts.
        const current = await get(workspace, id);
        if (current.version_id === row.version_id && current.status !== "uploading")
          return viewOf(current, workspace);
        throw error;
      }
      await db.transaction().execute(async (transaction) => {
        const { numUpdatedRows } = await transaction
          .updateTable("dataset_versions")
          .set({ status: "processing", updated_at: now() })
          .where("id", "=", row.version_id)
          .where("status", "=", "uploading")
          .executeTakeFirst();
        if (numUpdatedRows === 0n) return;
        await queue.enqueue(
          DATASET_QUEUE,
          { version_id: row.version_id },
          { id: row.version_id, transaction },
        );
      });
      bell.ring();
      for (const key of partKeys(row)) await blobs.delete(key);
      return viewOf(await get(workspace, id), workspace);
    },

    /** Gives an upload up, and deletes what has arrived of it. Of what is uploaded already nothing changes. */
    async abort(workspace: WorkspaceAccess, id: string): Promise<void> {
      const row = await get(workspace, id);
      const { numUpdatedRows } = await db
        .updateTable("dataset_versions")
        .set({ status: "cancelled", error: "The upload was aborted.", updated_at: now() })
        .where("id", "=", row.version_id)
        .where("status", "=", "uploading")
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return;
      for (const key of [...partKeys(row), sourceKey(row)]) await blobs.delete(key);
    },

    /** @throws {OsmosisError} NOT_FOUND; CONFLICT while there is nothing to download. */
    async download(workspace: WorkspaceAccess, nameOrId: string) {
      const row = await get(workspace, nameOrId);
      const fileName = `${row.name}.${row.format}`;
      const key = sourceKey(row);
      if (row.status === "uploading" || row.status === "cancelled" || (await blobs.stat(key)) === undefined) {
        throw new OsmosisError(
          "CONFLICT",
          `The data set ${row.name} is ${row.status}: there is no file yet.`,
          {
            hint: `See \`osmosis dataset info ${row.name}\`.`,
          },
        );
      }
      return {
        presigned_url: blobUrls.sign({ method: "GET", key, fileName }),
        expires_in: blobUrls.lifetimeSeconds,
        file_name: fileName,
      };
    },

    /** The version that a run would use now, or why there is none. */
    async usable(
      workspaceId: string,
      name: string,
    ): Promise<{ dataset: UsableDataset } | { problem: string; names: string[] }> {
      const row = await find(workspaceId, name);
      if (row === undefined) {
        const others = await db
          .selectFrom("datasets")
          .select("name")
          .where("workspace_id", "=", workspaceId)
          .orderBy("created_at", "desc")
          .limit(200)
          .execute();
        return { problem: `there is no data set ${name}`, names: others.map((other) => other.name) };
      }
      if (row.status !== "uploaded" || row.row_count === null) {
        const reason = row.error === null ? "" : `: ${row.error}`;
        return {
          problem: `the data set ${name} is not usable, its status is ${row.status}${reason}`,
          names: [],
        };
      }
      return { dataset: { id: row.id, name: row.name, versionId: row.version_id, rowCount: row.row_count } };
    },
  };

  /** The row of a name, locked; made when there is none. */
  async function lockDataset(
    transaction: Kysely<Tables>,
    workspaceId: string,
    name: string,
  ): Promise<{ id: string; isNew: boolean }> {
    const inserted = await transaction
      .insertInto("datasets")
      .values({ id: randomUUID(), workspace_id: workspaceId, name, created_at: now() })
      .onConflict((conflict) => conflict.columns(["workspace_id", "name"]).doNothing())
      .returning("id")
      .executeTakeFirst();
    if (inserted !== undefined) return { id: inserted.id, isNew: true };
    const existing = await transaction
      .selectFrom("datasets")
      .select("id")
      .where("workspace_id", "=", workspaceId)
      .where("name", "=", name)
      .forUpdate()
      .executeTakeFirstOrThrow();
    return { id: existing.id, isNew: false };
  }

  /** The number of the next version, if there may be one now. */
  async function nextVersion(
    transaction: Kysely<Tables>,
    dataset: { id: string; name: string; overwrite: string | undefined },
  ): Promise<number> {
    const versions = await transaction
      .selectFrom("dataset_versions")
      .select(["id", "number", "status", "created_at"])
      .where("dataset_id", "=", dataset.id)
      .orderBy("number", "desc")
      .execute();
    const isAlive = (version: { status: DatasetVersionStatus; created_at: Date }) =>
      version.status === "uploading" &&
      version.created_at.getTime() > now().getTime() - UPLOAD_MINUTES * 60_000;
    const isUploaded = versions.some((version) => version.status === "uploaded");
    const isUnderWay = versions.some((version) => isAlive(version) || version.status === "processing");
    // A name whose uploads have all failed holds nothing that could be overwritten by mistake.
    if ((isUploaded || isUnderWay) && dataset.overwrite !== dataset.id) {
      throw new OsmosisError(
        "CONFLICT",
        isUploaded
          ? `There is a data set ${dataset.name} already.`
          : `Another upload of the data set ${dataset.name} is under way.`,
        {
          hint: "Upload with --overwrite to replace it, or rename the file.",
          details: { existing_dataset_id: dataset.id },
        },
      );
    }
    await transaction
      .updateTable("dataset_versions")
      .set({ status: "cancelled", error: "Another upload took its place.", updated_at: now() })
      .where("dataset_id", "=", dataset.id)
      .where("status", "=", "uploading")
      .execute();
    return (versions[0]?.number ?? 0) + 1;
  }
}

/** Data sets with the version that each of them shows. */
function shown(connection: Kysely<Tables>) {
  return connection
    .selectFrom("datasets")
    .innerJoinLateral(
      (from) =>
        from
          .selectFrom("dataset_versions")
          .selectAll()
          .whereRef("dataset_versions.dataset_id", "=", "datasets.id")
          .orderBy(sql`dataset_versions.status = 'cancelled'`)
          .orderBy("dataset_versions.number", "desc")
          .limit(1)
          .as("version"),
      (join) => join.onTrue(),
    )
    .leftJoin("users", "users.id", "version.created_by")
    .select([
      "datasets.id",
      "datasets.workspace_id",
      "datasets.name",
      "datasets.created_at",
      "version.id as version_id",
      "version.number",
      "version.status",
      "version.format",
      "version.size_bytes",
      "version.part_size",
      "version.row_count",
      "version.preview",
      "version.error",
      "version.updated_at",
      "users.name as creator_name",
    ]);
}

type Shown = Awaited<ReturnType<ReturnType<typeof shown>["execute"]>>[number];

/** @throws {OsmosisError} VALIDATION. */
function checkName(fileName: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what is refused
  if (/^(?!\.\.?$)[^/\\\u0000-\u001f\u007f]+$/.test(fileName) && fileName.trim() === fileName)
    return fileName;
  throw new OsmosisError("VALIDATION", `${JSON.stringify(fileName)} cannot be the name of a data set.`, {
    hint: "Name the file without slashes and control characters.",
    details: { field: "file_name" },
  });
}
