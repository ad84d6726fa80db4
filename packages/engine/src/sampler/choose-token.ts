/** A token, and its natural log probability in the distribution that it was drawn from. */
export type Choice = { readonly token: number; readonly logprob: number };

/** The likeliest token; the first one of equals. */
export function likeliestToken(probabilities_V: Float32Array): Choice {
  let token = 0;
  let best = -1;
  for (let v = 0; v < probabilities_V.length; v++) {
    const p = probabilities_V[v] ?? 0;
    if (p > best) {
      best = p;
      token = v;
    }
  }
  return { token, logprob: Math.log(best) };
}

/** What leaves out the unlikely tokens: the `topK` likeliest stay, and of these as many as `topP` needs. */
export type Cut = { readonly topP: number; readonly topK?: number | undefined };

/**
 * Draws a token with the help of `uniform`, a number in [0, 1). With `topP` below 1 from the smallest set of likeliest
 * tokens that together reach it, whose probabilities are then scaled to add up to 1.
 */
export function drawToken(probabilities_V: Float32Array, { topP, topK }: Cut, uniform: number): Choice {
  if (topK !== undefined && topK < probabilities_V.length) {
    return drawFrom(probabilities_V, withinTopK(probabilities_V, topK, topP), uniform);
  }
  if (topP < 1) return drawFrom(probabilities_V, findNucleus(probabilities_V, topP), uniform);
  let total = 0;
  for (let v = 0; v < probabilities_V.length; v++) total += probabilities_V[v] ?? 0;
  let rest = uniform * total;
  let last = 0;
  for (let v = 0; v < probabilities_V.length; v++) {
    const p = probabilities_V[v] ?? 0;
    if (p === 0) continue;
    last = v;
    rest -= p;
    if (rest < 0) break;
  }
  return { token: last, logprob: Math.log(probabilities_V[last] ?? 0) };
}

function drawFrom(probabilities_V: Float32Array, nucleus: readonly number[], uniform: number): Choice {
  const total = nucleus.reduce((sum, v) => sum + (probabilities_V[v] ?? 0), 0);
  let rest = uniform * total;
  let token = nucleus[0] ?? 0;
  for (const v of nucleus) {
    token = v;
    rest -= probabilities_V[v] ?? 0;
    if (rest < 0) break;
  }
  return { token, logprob: Math.log((probabilities_V[token] ?? 0) / total) };
}

/** The `topK` likeliest, and of these the fewest that hold `topP` of their probability. */
function withinTopK(probabilities_V: Float32Array, topK: number, topP: number): number[] {
  const likeliest = findLikeliest(probabilities_V, topK);
  if (topP >= 1) return likeliest;
  const needed = topP * likeliest.reduce((sum, v) => sum + (probabilities_V[v] ?? 0), 0);
  let sum = 0;
  const size = likeliest.findIndex((v) => (sum += probabilities_V[v] ?? 0) >= needed) + 1;
  return size > 0 ? likeliest.slice(0, size) : likeliest;
}

/** Likeliest first; of equals those with the smaller ids. */
function findLikeliest(probabilities_V: Float32Array, count: number): number[] {
  for (let threshold = 1e-3; ; threshold = threshold < 1e-30 ? 0 : threshold * 1e-3) {
    const candidates = candidatesAbove(probabilities_V, threshold);
    if (candidates.length >= count || threshold === 0) return candidates.slice(0, count);
  }
}

/** Likeliest first; equals in order of their ids, so that the set is unique. */
function findNucleus(probabilities_V: Float32Array, topP: number): number[] {
  // Sorting a whole vocabulary is slow, and the likely tokens are few: look below a threshold only when those above it
  // do not suffice.
  for (let threshold = 1e-3; ; threshold = threshold < 1e-30 ? 0 : threshold * 1e-3) {
    const candidates = candidatesAbove(probabilities_V, threshold);
    let sum = 0;
    const size = candidates.findIndex((v) => (sum += probabilities_V[v] ?? 0) >= topP) + 1;
    if (size > 0) return candidates.slice(0, size);
    if (threshold === 0) return candidates;
  }
}

function candidatesAbove(probabilities_V: Float32Array, threshold: number): number[] {
  const candidates: number[] = [];
  for (let v = 0; v < probabilities_V.length; v++) {
    const p = probabilities_V[v] ?? 0;
    if (p > 0 && p >= threshold) candidates.push(v);
  }
  return candidates.sort((a, b) => (probabilities_V[b] ?? 0) - (probabilities_V[a] ?? 0) || a - b);
}
