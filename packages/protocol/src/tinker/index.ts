export * from "./forward-backward.ts";
export * from "./requests.ts";
export * from "./sample.ts";
export { TinkerTensor } from "./tensor.ts";
