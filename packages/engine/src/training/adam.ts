import type { AdamParams, OptimStepResult } from "../service.ts";
import type { Weights } from "../safetensors.ts";

/** First and second moments of every trainable tensor, and how many updates have been made. */
export type AdamState = {
  readonly m: ReadonlyMap<string, Float32Array>;
  readonly v: ReadonlyMap<string, Float32Array>;
  step: number;
};

export function createAdamState(trainable: Weights): AdamState {
  const zeros = () =>
    new Map([...trainable].map(([name, { data }]) => [name, new Float32Array(data.length)]));
  return { m: zeros(), v: zeros(), step: 0 };
}

/**
 * One step of Adam (Kingma and Ba, arXiv 1412.6980) with decoupled weight decay (arXiv 1711.05101), in place. The
 * gradients of all tensors together are scaled to `gradClipNorm` where they exceed it. A gradient with a NaN or an
 * infinity changes nothing, not even the step count.
 */
export function adamStep(
  trainable: Weights,
  gradients: ReadonlyMap<string, Float32Array>,
  state: AdamState,
  params: AdamParams,
): OptimStepResult {
  const gradNorm = globalNorm(gradients);
  if (!Number.isFinite(gradNorm)) return { gradNorm, updated: false };
  const { learningRate, beta1, beta2, epsilon, weightDecay, gradClipNorm } = params;
  state.step += 1;
  const clip = gradClipNorm > 0 && gradNorm > gradClipNorm ? gradClipNorm / gradNorm : 1;
  const stepSize = learningRate / (1 - beta1 ** state.step);
  const secondScale = 1 / (1 - beta2 ** state.step);
  const kept = 1 - learningRate * weightDecay;
  for (const [name, { data }] of trainable) {
    const gradient = gradients.get(name);
    const m = state.m.get(name);
    const v = state.v.get(name);
    if (gradient === undefined || m === undefined || v === undefined) throw new Error(`no state for ${name}`);
    updateTensor(data, gradient, m, v, { beta1, beta2, epsilon, clip, stepSize, secondScale, kept });
  }
  return { gradNorm, updated: true };
}

/** A function of its own so that the engine compiles one tight loop. The assertions hold: all four have one length. */
function updateTensor(
  weights: Float32Array,
  gradient: Float32Array,
  m: Float32Array,
  v: Float32Array,
  factors: {
    readonly beta1: number;
    readonly beta2: number;
    readonly epsilon: number;
    readonly clip: number;
    readonly stepSize: number;
    readonly secondScale: number;
    readonly kept: number;
  },
): void {
  const { beta1, beta2, epsilon, clip, stepSize, secondScale, kept } = factors;
  for (let i = 0; i < weights.length; i++) {
    const g = (gradient[i] as number) * clip;
    const first = beta1 * (m[i] as number) + (1 - beta1) * g;
    const second = beta2 * (v[i] as number) + (1 - beta2) * g * g;
    m[i] = first;
    v[i] = second;
    weights[i] =
      kept * (weights[i] as number) - (stepSize * first) / (Math.sqrt(second * secondScale) + epsilon);
  }
}

function globalNorm(gradients: ReadonlyMap<string, Float32Array>): number {
  let sum = 0;
  for (const gradient of gradients.values()) {
    for (let i = 0; i < gradient.length; i++) sum += (gradient[i] as number) ** 2; // within its length
  }
  return Math.sqrt(sum);
}
