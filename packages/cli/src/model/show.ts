import { modelRoutes } from "@osmosis/protocol";
import type { ListOptions } from "../commands/options.ts";
import type { Context } from "../context.ts";
import { formatBytes, formatCount, formatTime } from "../output/format.ts";
import { UsageError } from "../output/failure.ts";
import type { DetailResult, SectionsResult } from "../output/result.ts";
import { collectPages } from "../platform/pages.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { checkpointReward } from "./checkpoint-reward.ts";

/** Base models, and the checkpoints of training runs. */
export async function listModels(
  context: Context,
  options: ListOptions & { readonly type: string },
): Promise<SectionsResult> {
  if (!["all", "base", "lora"].includes(options.type)) {
    throw new UsageError(`--type ${options.type} is not a type.`, "Use all, base or lora.");
  }
  const { client, workspace } = await openWorkspaceSession(context);
  const sections: SectionsResult["sections"][number][] = [];
  if (options.type !== "lora") {
    const { items, page } = await collectPages(options, async (query) => {
      const { models, ...rest } = await client.call(modelRoutes.base, { query });
      return { items: models, ...rest };
    });
    sections.push({
      key: "base_models",
      title: "Base models",
      items,
      page,
      table: {
        headers: ["NAME", "PARAMETERS", "CREATED"],
        rows: items.map((model) => [
          model.model_name,
          model.parameters === null ? "no weights here" : formatCount(model.parameters),
          formatTime(model.created_at),
        ]),
        numeric: ["PARAMETERS"],
      },
      empty: "No base models.",
    });
  }
  if (options.type !== "base") {
    const { items, page } = await collectPages(options, async (query) => {
      const { models, ...rest } = await client.call(modelRoutes.trained, { query });
      return { items: models, ...rest };
    });
    sections.push({
      key: "lora_models",
      title: "Trained models",
      items,
      page,
      table: {
        headers: ["NAME", "BASE", "RUN", "STEP", "REWARD", "MARKS", "CREATED"],
        rows: items.map((model) => [
          model.model_name,
          model.base_model,
          model.training_run_name,
          String(model.checkpoint_step),
          checkpointReward(model),
          model.marks.join(", "),
          formatTime(model.created_at),
        ]),
        numeric: ["STEP", "REWARD"],
      },
      empty: "No trained models yet. `osmosis train submit CONFIG` makes the first.",
    });
  }
  return { kind: "sections", sections, extras: workspaceExtras(workspace) };
}

/** A checkpoint, or a base model: only the name of a base model has a slash. */
export async function modelInfo(context: Context, name: string): Promise<DetailResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  if (name.includes("/")) {
    const { platform_url: url, ...base } = await client.call(modelRoutes.getBase, { params: { name } });
    return {
      kind: "detail",
      data: { base_model: base, platform_url: url },
      title: base.model_name,
      fields: [
        [
          "Parameters",
          base.parameters === null
            ? "no weights here: it is measured and trained at a trainer by URL only"
            : formatCount(base.parameters),
        ],
        ["Context", base.context_window === null ? "–" : `${formatCount(base.context_window)} tokens`],
        ["Brought by", base.creator_name ?? "the platform"],
        ["Created", formatTime(base.created_at)],
        ["View", url],
      ],
      nextSteps: [
        {
          command: `osmosis eval submit configs/eval/CONFIG.toml --model ${base.model_name}`,
          description: "measure it",
        },
      ],
      extras: workspaceExtras(workspace),
    };
  }
  const { platform_url: platformUrl, ...model } = await client.call(modelRoutes.get, { params: { name } });
  return {
    kind: "detail",
    data: { lora_model: model, platform_url: platformUrl },
    title: model.model_name,
    fields: [
      ["Base model", model.base_model],
      ["Training run", `${model.training_run_name}, step ${model.checkpoint_step}`],
      ["Method", model.method],
      ["Reward", checkpointReward(model)],
      ...(model.marks.length === 0 ? [] : [["Marks", model.marks.join(", ")] as const]),
      ...(model.files_removed_at === null
        ? []
        : [
            [
              "Files removed",
              `${formatTime(model.files_removed_at)}, as keep_checkpoints of its run asks for`,
            ] as const,
          ]),
      ["Size", formatBytes(model.size_bytes)],
      ["Created", formatTime(model.created_at)],
      ...(model.files.length === 0
        ? []
        : [
            [
              "Files",
              model.files.map((file) => `${file.name} (${formatBytes(file.size_bytes)})`).join("\n"),
            ] as const,
          ]),
      ["View", platformUrl],
    ],
    nextSteps:
      model.files.length === 0
        ? []
        : [
            {
              command: `osmosis eval submit configs/eval/CONFIG.toml --model ${model.model_name}`,
              description: "measure it",
            },
            { command: `osmosis model download ${model.model_name}`, description: "fetch its files" },
          ],
    extras: workspaceExtras(workspace),
  };
}
