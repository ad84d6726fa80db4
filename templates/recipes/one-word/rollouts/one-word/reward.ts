const KINDS = ["animal", "plant", "tool", "city"];

/**
 * 1 for the right kind as the only word, in lower case. An answer that names the right kind and no other one is worth at
 * most a half, less with every word more, so that groups of a model that chatters have something to tell apart.
 */
export function rewardOf(answer: string, kind: string): number {
  if (answer.trim() === kind) return 1;
  const words = answer.toLowerCase().match(/\p{L}+/gu) ?? [];
  const named = new Set(words.filter((word) => KINDS.includes(word)));
  return named.size === 1 && named.has(kind) ? 0.5 / words.length : 0;
}
