export { ERROR_CODES, OsmosisError, errorMessage, type ErrorCode } from "./errors.ts";
export * from "./atif.ts";
export * from "./atif-from-messages.ts";
export * from "./chat.ts";
export * from "./outcome.ts";
export * from "./plain-json.ts";
export * from "./rollout.ts";
