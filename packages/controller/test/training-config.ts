import { TrainingRunConfig } from "@osmosis/protocol";

/** A training configuration with its defaults, but for what is given. */
export function trainingConfig(advanced: object = {}, training: object = {}): TrainingRunConfig {
  return TrainingRunConfig.parse({
    experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
    training,
    advanced,
  });
}
