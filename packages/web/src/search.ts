import { RolloutOutcome } from "@osmosis/protocol";
import { z } from "zod";

// What an address says wrongly is as if it said nothing: addresses are typed, cut off and passed around.
const text = z.string().optional().catch(undefined);
const offset = z.int().min(0).optional().catch(undefined);

const ListSearch = z.object({ offset });

const RunSearch = z.object({
  tab: z.enum(["rollouts", "checkpoints", "logs", "configuration"]).optional().catch(undefined),
  phase: z.enum(["train", "validation"]).optional().catch(undefined),
  step: z.int().min(1).optional().catch(undefined),
  outcome: RolloutOutcome.optional().catch(undefined),
  offset,
});
/** What of a run is shown: kept in the address, so that "back" from a rollout returns to the same place. */
export type RunSearch = z.infer<typeof RunSearch>;

/** Names of the runs that are compared, with commas between them. */
const CompareSearch = z.object({ runs: text });

const SignInSearch = z.object({ error: text, to: text });
const DeviceSearch = z.object({ user_code: text });

export const readListSearch = (search: Record<string, unknown>) => ListSearch.parse(search);
export const readRunSearch = (search: Record<string, unknown>) => RunSearch.parse(search);
export const readCompareSearch = (search: Record<string, unknown>) => CompareSearch.parse(search);
export const readSignInSearch = (search: Record<string, unknown>) => SignInSearch.parse(search);
export const readDeviceSearch = (search: Record<string, unknown>) => DeviceSearch.parse(search);

/** The text when it is a path of this dashboard: nobody may be led to another site by signing in. */
export function localPath(path: string | undefined): string | undefined {
  if (path === undefined || !URL.canParse(path, "http://here")) return undefined;
  // Browsers read a backslash as a slash, and leave out tabs and line ends.
  return path.startsWith("/") && new URL(path, "http://here").origin === "http://here" ? path : undefined;
}
