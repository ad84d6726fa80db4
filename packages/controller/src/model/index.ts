/** What the command line needs of models before they are on a platform. */
export { checkModelFolder, importGguf, parseModelConfig } from "@osmosis/engine";
export type { CheckedModel } from "@osmosis/engine";
