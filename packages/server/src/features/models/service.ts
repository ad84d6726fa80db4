import { parseModelSize } from "@osmosis/engine";
import {
  OsmosisError,
  closest,
  holdWeights,
  type BaseModel,
  type CheckpointMark,
  type TrainedModel,
} from "@osmosis/protocol";
import { sql } from "kysely";
import type { Platform } from "../../platform.ts";
import type { WorkspaceAccess } from "../workspaces/service.ts";
import { PROVIDER_NAMES, providerOf } from "./providers.ts";
import { storedConfig } from "./stored-config.ts";
import type { StoredFile } from "./tables.ts";

/** The model of a run as it is kept with the run: later changes of its name do not reach it. */
export type RunModel =
  | {
      readonly type: "local";
      readonly id: string;
      readonly name: string;
      readonly base_model: string;
      readonly base_files: readonly StoredFile[];
      /** Empty for a model without an adapter. */
      readonly adapter_files: readonly StoredFile[];
    }
  | {
      readonly type: "provider";
      readonly name: string;
      readonly model: string;
      readonly base_url: string;
      readonly api_key_name: string;
    };

/** Why a model cannot be used; `correction` is the name that was probably meant. */
export type ModelProblem = { readonly problem: string; readonly correction?: string };

export type Models = ReturnType<typeof createModels>;

/** Base models, which the server has, and trained models, which runs of a workspace made. */
export function createModels(parts: Pick<Platform, "db" | "blobs" | "blobUrls" | "url">) {
  const { db, blobs, blobUrls } = parts;

  return {
    async listBase(page: { limit: number; offset: number }): Promise<{ items: BaseModel[]; total: number }> {
      const base = db.selectFrom("base_models").where("is_available", "=", true);
      const { total } = await base.select(sql<number>`count(*)::int`.as("total")).executeTakeFirstOrThrow();
      const rows = await base.selectAll().orderBy("name").limit(page.limit).offset(page.offset).execute();
      const items = rows.map(baseViewOf);
      return { items, total };
    },

    /** @throws {OsmosisError} NOT_FOUND. */
    async getBase(workspace: WorkspaceAccess, nameOrId: string) {
      const row = await db
        .selectFrom("base_models")
        .selectAll()
        .where((by) => by.or([by("name", "=", nameOrId), by("id", "=", nameOrId)]))
        .where("is_available", "=", true)
        .executeTakeFirst();
      if (row === undefined) {
        throw new OsmosisError("NOT_FOUND", `There is no base model ${nameOrId}.`, {
          hint: "See `osmosis model list --type base` for the names.",
        });
      }
      return {
        ...baseViewOf(row),
        namespace: row.name.slice(0, row.name.indexOf("/")),
        context_window: (await storedConfig(blobs, row.files, parseModelSize))?.contextLength ?? null,
        platform_url: `${parts.url}/${workspace.name}/models`,
      };
    },

    /** Newest first. */
    async listTrained(
      workspace: WorkspaceAccess,
      page: { limit: number; offset: number },
    ): Promise<{ items: TrainedModel[]; total: number }> {
      const trained = db
        .selectFrom("trained_models")
        .where("workspace_id", "=", workspace.id)
        .where("files_removed_at", "is", null);
      const { total } = await trained
        .select(sql<number>`count(*)::int`.as("total"))
        .executeTakeFirstOrThrow();
      const rows = await trained
        .selectAll()
        .orderBy("created_at", "desc")
        .orderBy("id")
        .limit(page.limit)
        .offset(page.offset)
        .execute();
      return { items: rows.map(viewOf), total };
    },

    /** @throws {OsmosisError} NOT_FOUND. */
    async get(workspace: WorkspaceAccess, nameOrId: string) {
      const row = await findTrained(workspace.id, nameOrId);
      if (row === undefined) {
        throw new OsmosisError(
          "NOT_FOUND",
          `There is no trained model ${nameOrId} in the workspace ${workspace.name}.`,
          {
            hint: "See `osmosis model list` for the names.",
          },
        );
      }
      return {
        ...viewOf(row),
        platform_url: `${parts.url}/${workspace.name}/models/${encodeURIComponent(row.name)}`,
        base_files: row.method === "full" || row.files.length === 0 ? [] : row.base_files.map(downloadable),
        files: row.files.map(downloadable),
      };
    },

    /**
     * The model that `[experiment].model_path` names: a base model, a trained model (alone or as `<base>:<name>`), or,
     * where `allowProviders`, one of a hosted provider as `openai/<model>`.
     */
    async resolve(
      workspaceId: string,
      modelPath: string,
      { allowProviders, env }: { allowProviders: boolean; env: Readonly<Record<string, string>> },
    ): Promise<{ readonly model: RunModel } | ModelProblem> {
      const base = await db
        .selectFrom("base_models")
        .selectAll()
        .where("name", "=", modelPath)
        .where("is_available", "=", true)
        .executeTakeFirst();
      if (base !== undefined) {
        const { id, name, files } = base;
        return {
          model: {
            type: "local",
            id,
            name,
            base_model: name,
            base_files: files.map(plainFile),
            adapter_files: [],
          },
        };
      }
      const trained = await findTrained(workspaceId, modelPath);
      if (trained?.files_removed_at != null) {
        return {
          problem: `the files of ${trained.name} were removed, as [advanced].keep_checkpoints of ${trained.run_name} asks for; see \`osmosis train info ${trained.run_name}\` for those that are kept`,
        };
      }
      if (trained !== undefined) {
        const { id, name, base_model, method, files, base_files } = trained;
        return {
          model: {
            type: "local",
            id,
            name,
            base_model,
            base_files: method === "full" ? files : base_files,
            adapter_files: method === "full" ? [] : files,
          },
        };
      }
      const hosted = providerOf(modelPath);
      if (hosted === undefined) return await unknownModel(workspaceId, modelPath, allowProviders);
      if (!allowProviders) {
        return {
          problem: `${modelPath} is a model of a hosted provider, whose weights cannot be trained; name a base model`,
        };
      }
      const { provider, model } = hosted;
      return {
        model: {
          type: "provider",
          name: modelPath,
          model,
          base_url: env[provider.baseUrlName] ?? provider.baseUrl,
          api_key_name: provider.apiKeyName,
        },
      };
    },
  };

  function downloadable({ name, key, size_bytes, sha256 }: StoredFile) {
    return { name, size_bytes, sha256, presigned_url: blobUrls.sign({ method: "GET", key, fileName: name }) };
  }

  async function findTrained(workspaceId: string, nameOrId: string) {
    const names = [nameOrId, nameOrId.slice(nameOrId.indexOf(":") + 1)];
    const rows = await db
      .selectFrom("trained_models")
      .selectAll()
      .where("workspace_id", "=", workspaceId)
      .where((by) => by.or([by("name", "in", names), by("id", "=", nameOrId)]))
      .execute();
    const found = rows.find((row) => row.name === nameOrId) ?? rows.find((row) => row.id === nameOrId);
    return found ?? rows.find((row) => `${row.base_model}:${row.name}` === nameOrId);
  }

  async function unknownModel(
    workspaceId: string,
    modelPath: string,
    allowProviders: boolean,
  ): Promise<ModelProblem> {
    const bases = await db
      .selectFrom("base_models")
      .select("name")
      .where("is_available", "=", true)
      .execute();
    const trained = await db
      .selectFrom("trained_models")
      .select("name")
      .where("workspace_id", "=", workspaceId)
      .where("files_removed_at", "is", null)
      .orderBy("created_at", "desc")
      .limit(500)
      .execute();
    const correction = closest(
      modelPath,
      [...bases, ...trained].map((row) => row.name),
    );
    const providers = allowProviders
      ? `, or a hosted model (${PROVIDER_NAMES.join(", ")}) as provider/model`
      : "";
    return {
      problem:
        `there is no model ${modelPath}; name a base model (${bases.map((row) => row.name).join(", ") || "none"}), ` +
        `a trained model of this workspace${providers}`,
      ...(correction === undefined ? {} : { correction }),
    };
  }
}

function plainFile({ name, key, size_bytes, sha256 }: StoredFile): StoredFile {
  return { name, key, size_bytes, sha256 };
}

export function baseViewOf(row: {
  readonly id: string;
  readonly name: string;
  readonly parameters: number;
  readonly files: readonly StoredFile[];
  readonly created_at: Date;
  readonly updated_at: Date;
}): BaseModel {
  return {
    id: row.id,
    model_name: row.name,
    base_model: row.name,
    parameters: holdWeights(row.files) ? row.parameters : null,
    creator_name: null,
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
  };
}

function viewOf(row: {
  id: string;
  name: string;
  base_model: string;
  run_name: string;
  step: number;
  method: "lora" | "full";
  reward: number | null;
  validation_reward: number | null;
  is_best: boolean;
  is_last: boolean;
  files_removed_at: Date | null;
  size_bytes: number;
  created_at: Date;
}): TrainedModel {
  return {
    id: row.id,
    model_name: row.name,
    base_model: row.base_model,
    training_run_name: row.run_name,
    checkpoint_step: row.step,
    method: row.method,
    reward: row.reward,
    validation_reward: row.validation_reward,
    marks: marksOf(row),
    files_removed_at: row.files_removed_at?.toISOString() ?? null,
    size_bytes: row.size_bytes,
    created_at: row.created_at.toISOString(),
  };
}

export function marksOf(row: { readonly is_best: boolean; readonly is_last: boolean }): CheckpointMark[] {
  return [...(row.is_best ? (["best"] as const) : []), ...(row.is_last ? (["last"] as const) : [])];
}
