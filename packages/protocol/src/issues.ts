import type { z } from "zod";

/** One fault of an input, where it is and what it may have meant. */
export type Issue = { readonly key: string; readonly message: string; readonly key_correction?: string };

/**
 * The faults that a schema found, one per key, with a suggestion for a misspelt key.
 *
 * @param knownKeys - the keys that the input could have had, for suggestions
 */
export function issuesOf(error: z.ZodError, knownKeys: readonly string[] = []): Issue[] {
  return error.issues.flatMap((issue): Issue[] => {
    const path = issue.path.map(String).join(".");
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => {
        const suggestion = closest(key, knownKeys);
        return {
          key: path === "" ? key : `${path}.${key}`,
          message: "is not a known key",
          ...(suggestion === undefined ? {} : { key_correction: suggestion }),
        };
      });
    }
    // Why the key of a record is refused stands in the issues of the key.
    const message =
      issue.code === "invalid_key" ? (issue.issues[0]?.message ?? issue.message) : issue.message;
    return [{ key: path === "" ? "(root)" : path, message }];
  });
}

/** The candidate within two edits of the word, if there is one. */
export function closest(word: string, candidates: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = 3;
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - word.length) >= bestDistance) continue;
    const distance = editDistance(word, candidate);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Levenshtein distance. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substituted = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(substituted, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
