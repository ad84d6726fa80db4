/**
 * What one rollout may bring into the statistics of a run. Each metric is a curve of the run, and each value is squared and
 * added up, so neither their number nor their size can be left to a grader that goes wrong.
 */

/** Of a rollout, and of what is shown of many together: a grader may give each rollout names of its own. */
export const MAX_METRICS = 256;
const MAX_NAME_LENGTH = 128;
/** Its square, a million times, is still a number. */
const LARGEST_METRIC = 1e100;
/** Rewards become gradients in 32 bits. */
export const LARGEST_REWARD = 1e9;

/** What is wrong with the metrics of a rollout, as a sentence; undefined where nothing is. */
export function metricsFault(metrics: Readonly<Record<string, number | null>>): string | undefined {
  const entries = Object.entries(metrics);
  if (entries.length > MAX_METRICS) {
    return `The rollout gave ${entries.length} metrics; a rollout may have ${MAX_METRICS}.`;
  }
  for (const [name, value] of entries) {
    const shown = JSON.stringify(name.length > 40 ? `${name.slice(0, 40)}…` : name);
    if (name === "" || name.length > MAX_NAME_LENGTH || /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(name)) {
      return (
        `The metric ${shown} has a name that cannot be shown: ` +
        `it needs 1 to ${MAX_NAME_LENGTH} characters without line breaks and control characters.`
      );
    }
    if (value !== null && !(Math.abs(value) <= LARGEST_METRIC)) {
      return `The metric ${shown} is ${value}, which cannot be averaged.`;
    }
  }
  return undefined;
}

/** What is wrong with a reward, as a sentence; undefined where nothing is. */
export function rewardFault(reward: number): string | undefined {
  if (!Number.isFinite(reward)) return `The grader gave the reward ${reward}, which is not finite.`;
  if (Math.abs(reward) <= LARGEST_REWARD) return undefined;
  return `The grader gave the reward ${reward}; beyond ${LARGEST_REWARD} nothing can be learned from it. Give rewards of a small scale, such as 0 to 1.`;
}
