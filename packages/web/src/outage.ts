import { OsmosisError } from "@osmosis/protocol";

/** True for what ends by itself: the platform cannot be reached, or is starting. */
export function isOutage(error: unknown): boolean {
  if (!(error instanceof OsmosisError)) return false;
  if (error.code === "NETWORK") return true;
  const status = error.details?.["status_code"];
  return status === 502 || status === 503 || status === 504;
}
