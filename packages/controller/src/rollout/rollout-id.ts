import { seedOf } from "../seed.ts";

/** Which rollout of a run it is. A run that is taken up again after a crash names it the same. */
export type RolloutIdentity = {
  readonly runId: string;
  readonly phase: "eval" | "train" | "validation";
  /** 0 in an evaluation. */
  readonly step: number;
  readonly rowIndex: number;
  readonly sampleIndex: number;
  /** How often the rollout came to an end before, and is run once more; 0 without it. */
  readonly execution?: number;
};

/**
 * The rollout's id: one path segment. `attempt` is 0 unless a server still held an earlier execution of the same rollout.
 */
export function rolloutIdOf(
  { runId, phase, step, rowIndex, sampleIndex, execution = 0 }: RolloutIdentity,
  attempt: number,
): string {
  const again = execution === 0 ? "" : `-e${execution}`;
  const id = `${runId}-${phase}-s${step}-r${rowIndex}-n${sampleIndex}${again}`;
  return attempt === 0 ? id : `${id}-a${attempt}`;
}

/**
 * What the rollout samples with: the same at every attempt and every execution, another for each other rollout. So a
 * rollout that is run again is the same draw once more, and retrying selects nothing.
 */
export function rolloutSeed(
  runSeed: number,
  { phase, step, rowIndex, sampleIndex }: Omit<RolloutIdentity, "runId" | "execution">,
): number {
  return seedOf(runSeed, phase, step, rowIndex, sampleIndex);
}
