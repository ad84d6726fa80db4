/** What the command line needs of models that lie on this machine. */
export {
  checkModelFolder,
  checkWeightlessFolder,
  importGguf,
  mergeAdapterFolder,
  parseModelConfig,
  parseModelSize,
} from "@osmosis/engine";
export type { CheckedModel, CheckedWeightless } from "@osmosis/engine";
