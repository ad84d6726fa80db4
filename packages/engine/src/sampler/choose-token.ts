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

/**
 * Draws a token with the help of `uniform`, a number in [0, 1). With `topP` below 1 from the smallest set of likeliest
 * tokens that together reach it, whose probabilities are then scaled to add up to 1.
 */
export function drawToken(probabilities_V: Float32Array, topP: number, uniform: number): Choice {
  if (topP < 1) return drawFromNucleus(probabilities_V, topP, uniform);
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

function drawFromNucleus(probabilities_V: Float32Array, topP: number, uniform: number): Choice {
  const nucleus = findNucleus(probabilities_V, topP);
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

/** Likeliest first; equals in order of their ids, so that the set is unique. */
function findNucleus(probabilities_V: Float32Array, topP: number): number[] {
  // Sorting a whole vocabulary is slow, and the likely tokens are few: look below a threshold only when those above it
  // do not suffice.
  for (let threshold = 1e-3; ; threshold = threshold < 1e-30 ? 0 : threshold * 1e-3) {
    const candidates: number[] = [];
    for (let v = 0; v < probabilities_V.length; v++) {
      if ((probabilities_V[v] ?? 0) >= threshold) candidates.push(v);
    }
    candidates.sort((a, b) => (probabilities_V[b] ?? 0) - (probabilities_V[a] ?? 0) || a - b);
    let sum = 0;
    const size = candidates.findIndex((v) => (sum += probabilities_V[v] ?? 0) >= topP) + 1;
    if (size > 0) return candidates.slice(0, size);
    if (threshold === 0) return candidates;
  }
}
