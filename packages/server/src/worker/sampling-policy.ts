import type { GatewayPolicy } from "@osmosis/controller";
import { loadChatCodec, type TrainingService } from "@osmosis/engine";
import { OsmosisError, type Job, type ModelAssignment, type TrainerChoice } from "@osmosis/protocol";
import { openSamplerOf } from "./choose-trainer.ts";
import type { FileCache } from "./file-cache.ts";
import { localModel } from "./trained-model.ts";

/**
 * What answers the model calls of an evaluation: a sampler of our own engine or of a trainer, or a hosted provider.
 *
 * @throws OsmosisError `VALIDATION` without the provider's key.
 */
export async function openPolicy(
  job: {
    readonly model: ModelAssignment;
    readonly env: Readonly<Record<string, string>>;
    readonly secrets: Readonly<Record<string, string>>;
    readonly trainer?: Job["trainer"];
    readonly trainer_choice: TrainerChoice;
  },
  parts: {
    readonly tools: {
      readonly files: FileCache;
      readonly openService: () => Promise<TrainingService>;
      readonly fetch: typeof fetch;
    };
    readonly opened: AsyncDisposableStack;
    readonly folder: string;
    readonly signal: AbortSignal;
    readonly notice?: (text: string) => void;
  },
): Promise<GatewayPolicy> {
  const { model } = job;
  if (model.type === "local") {
    const source = await localModel(model, parts);
    const notice = parts.notice ?? (() => {});
    const sampler = await openSamplerOf({ ...job, model }, source, { ...parts, notice });
    return { type: "local", name: model.name, sampler, codec: await loadChatCodec(source.folder) };
  }
  const apiKey = { ...job.env, ...job.secrets }[model.api_key_name];
  if (apiKey === undefined) {
    throw new OsmosisError("VALIDATION", `The model ${model.name} needs the secret ${model.api_key_name}.`, {
      hint: `Add "${model.api_key_name}" to [secrets].required and set it with osmosis secret set.`,
    });
  }
  return { type: "provider", model: model.model, baseUrl: model.base_url, apiKey, fetch: parts.tools.fetch };
}
