import { describe, expect, test } from "vitest";
import { GraphBuilder } from "./graph/builder.ts";
import { loadRuntime, type TensorData } from "./graph/session.ts";
import { clipBounds, emitTokenLoss, tokenLoss } from "./losses.ts";
import type { LossSpec } from "./service.ts";

const LOGPROBS = [-1, -0.5, -2, -0.1];
const SAMPLER_LOGPROBS = [-1.2, -0.9, -1, -0.1];

const SPECS: readonly LossSpec[] = [
  { type: "cross_entropy" },
  { type: "importance_sampling" },
  { type: "ppo", clipLow: 0.8, clipHigh: 1.2 },
  { type: "ppo", clipLow: 0.8, clipHigh: 1.28 },
  { type: "cispo", clipLow: 0.8, clipHigh: 1.2 },
];

function losses(spec: LossSpec, advantage: number): number[] {
  return LOGPROBS.map((logprob, t) => {
    return tokenLoss(spec, { logprob, samplerLogprob: SAMPLER_LOGPROBS[t]!, advantage }).loss;
  });
}

function expectClose(found: readonly number[], expected: readonly number[]): void {
  expect(found).toHaveLength(expected.length);
  for (const [i, value] of expected.entries()) expect(found[i]).toBeCloseTo(value, 6);
}

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

describe("golden values", () => {
  test("importance sampling", () => {
    expect(sum(losses({ type: "importance_sampling" }, 1))).toBeCloseTo(-4.081107, 6);
    expect(sum(losses({ type: "importance_sampling" }, -1))).toBeCloseTo(4.081107, 6);
  });

  test("ppo with one clip bound on each side", () => {
    const spec = { type: "ppo", clipLow: 0.8, clipHigh: 1.2 } as const;
    expectClose(losses(spec, 1), [-1.2, -1.2, -0.3678794, -1]);
    expectClose(losses(spec, -1), [1.2214028, 1.4918247, 0.8, 1]);
  });

  test("ppo with a higher upper bound, as in DAPO", () => {
    const spec = { type: "ppo", clipLow: 0.8, clipHigh: 1.28 } as const;
    expectClose(losses(spec, 1), [-1.2214028, -1.28, -0.3678794, -1]);
    expectClose(losses(spec, -1), [1.2214028, 1.4918247, 0.8, 1]);
  });

  test("cispo", () => {
    const spec = { type: "cispo", clipLow: 0.8, clipHigh: 1.2 } as const;
    expectClose(losses(spec, 1), [1.2, 0.6, 1.6, 0.1]);
    expect(sum(losses(spec, -1))).toBeCloseTo(-3.5, 6);
  });

  test("cross entropy ignores the advantage", () => {
    expectClose(losses({ type: "cross_entropy" }, -7), [1, 0.5, 2, 0.1]);
  });
});

test("derivatives agree with differences of the loss; clipping stops the gradient of ppo", () => {
  const step = 1e-6;
  for (const spec of SPECS.filter(({ type }) => type !== "cispo")) {
    for (const advantage of [1, -1]) {
      for (const [t, logprob] of LOGPROBS.entries()) {
        const token = { logprob, samplerLogprob: SAMPLER_LOGPROBS[t]!, advantage };
        const above = tokenLoss(spec, { ...token, logprob: logprob + step }).loss;
        const below = tokenLoss(spec, { ...token, logprob: logprob - step }).loss;
        expect(tokenLoss(spec, token).derivative).toBeCloseTo((above - below) / (2 * step), 5);
      }
    }
  }
});

test("the gradient of cispo survives clipping", () => {
  const spec = { type: "cispo", clipLow: 0.8, clipHigh: 1.2 } as const;
  const derivatives = LOGPROBS.map(
    (logprob, t) =>
      tokenLoss(spec, { logprob, samplerLogprob: SAMPLER_LOGPROBS[t]!, advantage: 1 }).derivative,
  );
  expectClose(derivatives, [-1.2, -1.2, -0.8, -1]);
});

test.each(SPECS)("the graph and plain JavaScript agree on $type", async (spec) => {
  const graph = new GraphBuilder();
  const column = ["S", 1];
  const { loss, derivative } = emitTokenLoss(graph, spec.type, {
    logprob: graph.input("logprob", column),
    samplerLogprob: graph.input("samplerLogprob", column),
    advantage: graph.input("advantage", column),
    clipLow: graph.input("clipLow", []),
    clipHigh: graph.input("clipHigh", []),
  });
  graph.output("loss", loss);
  graph.output("derivative", derivative);
  const session = await (await loadRuntime({ threads: 1 })).createSession(graph.build());
  const tokens = [1, -1, 0].flatMap((advantage) =>
    LOGPROBS.map((logprob, t) => ({ logprob, samplerLogprob: SAMPLER_LOGPROBS[t]!, advantage })),
  );
  const { clipLow, clipHigh } = clipBounds(spec);
  const results = await session.run({
    logprob: feed(tokens.map((token) => token.logprob)),
    samplerLogprob: feed(tokens.map((token) => token.samplerLogprob)),
    advantage: feed(tokens.map((token) => token.advantage)),
    clipLow: feed([clipLow], []),
    clipHigh: feed([clipHigh], []),
  });
  await session.release();
  const expected = tokens.map((token) => tokenLoss(spec, token));
  expectClose(
    [...results["loss"]!],
    expected.map(({ loss }) => loss),
  );
  expectClose(
    [...results["derivative"]!],
    expected.map(({ derivative }) => derivative),
  );
});

function feed(values: readonly number[], shape: readonly number[] = [values.length, 1]): TensorData {
  return { data: Float32Array.from(values), shape };
}
