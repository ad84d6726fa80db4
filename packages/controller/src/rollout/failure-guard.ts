import { isScored } from "@osmosis/protocol";
import type { RolloutOutcome, RolloutRecord } from "@osmosis/protocol";
import type { RolloutServer } from "./server-client.ts";

/** What a person does about a class of failures. */
const ADVICE: Record<Exclude<RolloutOutcome, "ok" | "truncated">, string> = {
  timeout:
    "Raise agent_workflow_timeout_s, or find out what the agent waits for; its own waits need deadlines.",
  provider:
    "Look at the model's side: is the trainer or the provider up, is its key valid, is its quota used up?",
  agent: "Run the agent on one row with the SDK's test kit, and mend what it throws.",
  grader:
    "Run the grader on one sample with the SDK's test kit: it must give one finite reward in reward_range, in time.",
  sandbox: "Look at the rollout server's log: it refuses rollouts, has no room for them, or answers wrongly.",
  cancelled: "Somebody, or the rollout server itself, cancels the rollouts; look at its log.",
  lost: "The rollout server went away, or forgot its rollouts; look at its log and its memory.",
};

/**
 * Stops a run after `limit` rollouts in a row that failed in one and the same way.
 *
 * @param isExcused - true for one that is neither a failure of its own nor a success
 */
export function failureGuard(
  limit: number,
  isExcused: (rollout: RolloutRecord) => boolean = () => false,
): (rollout: RolloutRecord) => string | undefined {
  let last: RolloutOutcome | undefined;
  let inARow = 0;
  return (rollout) => {
    const { outcome, error } = rollout;
    if (outcome === "lost" && isExcused(rollout)) return undefined;
    inARow = outcome === last ? inARow + 1 : 1;
    last = outcome;
    if (outcome === "ok" || outcome === "truncated" || inARow < limit) return undefined;
    return (
      `${inARow} rollouts in a row ended with the outcome ${outcome}; the last one said: ${error ?? "nothing"} ` +
      `What to do: ${ADVICE[outcome]} Then submit the run again; max_consecutive_failures is ${limit}.`
    );
  };
}

/**
 * Why none of the rollouts has a reward: the commonest outcome and its message; undefined when one has.
 *
 * @param isExcused - true for one that is neither a failure of its own nor a success; where all are, nothing is said
 */
export function noneScored(
  all: readonly RolloutRecord[],
  isExcused: (rollout: RolloutRecord) => boolean = () => false,
): string | undefined {
  if (all.some(({ outcome }) => isScored(outcome))) return undefined;
  const rollouts = all.filter((rollout) => !isExcused(rollout));
  if (rollouts.length === 0 && all.length > 0) return undefined;
  const [byOutcome] = commonest(rollouts, ({ outcome }) => outcome);
  if (byOutcome === undefined) return "There is no rollout, so none has a reward.";
  // Each rollout has an address of its own, which messages repeat: it makes no other reason of them.
  const [alike] = commonest(byOutcome, ({ error }) => (error ?? "").replaceAll(/https?:\/\/\S+/g, ""));
  const { outcome, error } = (alike ?? byOutcome)[0] ?? {};
  return (
    `None of the ${rollouts.length} rollouts has a reward. ` +
    `Most often (${byOutcome.length}) they ended with ${outcome}: ${error ?? "no message"}`
  );
}

/** Says of a rollout whether it ended with the life of its server, however many others did: that is one incident. */
export function takenWith({ lives }: Pick<RolloutServer, "lives">): (rollout: RolloutRecord) => boolean {
  return ({ rollout_id: id }) => lives?.hasTaken(id) === true;
}

/** The items in groups of one key, the largest group first. */
function commonest<T>(items: readonly T[], keyOf: (item: T) => string): T[][] {
  return [...Map.groupBy(items, keyOf).values()].sort((a, b) => b.length - a.length);
}
