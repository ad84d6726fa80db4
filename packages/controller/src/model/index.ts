/** What the command line needs of models that lie on this machine. */
export { checkModelFolder, importGguf, mergeAdapterFolder, parseModelConfig } from "@osmosis/engine";
export type { CheckedModel } from "@osmosis/engine";
