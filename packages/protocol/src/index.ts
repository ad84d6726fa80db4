export { ERROR_CODES, OsmosisError, errorMessage, type ErrorCode } from "./errors.ts";
