import { RolloutResultReply } from "@osmosis/protocol";

/** The parts of a sample that are told when they cannot be read; more would say no more. */
const MAX_TOLD = 5;

/**
 * Reads a result reply. A success whose sample cannot be read, such as one with a reward that is a text or infinite, is a
 * failure of whoever made the unreadable part: the grader makes reward and metrics, the workflow the rest.
 *
 * @returns undefined for what is no reply.
 */
export function readResultReply(body: unknown): RolloutResultReply | undefined {
  const parsed = RolloutResultReply.safeParse(body);
  if (parsed.success) return parsed.data;
  const { issues } = parsed.error;
  if (at(body, ["status"]) !== "success" || issues.some(({ path }) => path[0] !== "sample")) return undefined;
  const byGrader = issues.every(({ path }) => path[1] === "reward" || path[1] === "metrics");
  const said = issues
    .slice(0, MAX_TOLD)
    .map(({ path, message }) => `${path.join(".")} is ${shown(at(body, path))}: ${message}`);
  if (issues.length > MAX_TOLD) said.push(`and ${issues.length - MAX_TOLD} more`);
  return RolloutResultReply.parse({
    status: "failure",
    err_category: "validation_error",
    err_phase: byGrader ? "grader" : "workflow",
    err_message: `The sample of the rollout cannot be read. ${said.join("; ")}.`,
  });
}

function at(body: unknown, path: readonly PropertyKey[]): unknown {
  let value = body;
  for (const key of path) {
    if (typeof value !== "object" || value === null) return undefined;
    // A key that is not there gives undefined.
    value = (value as Record<PropertyKey, unknown>)[key];
  }
  return value;
}

/** JSON has no word for an infinite number. */
function shown(value: unknown): string {
  return (typeof value === "number" ? String(value) : JSON.stringify(value ?? null)).slice(0, 100);
}
