import { expect, test } from "vitest";
import { worstGradientError } from "./gradient-check.ts";
import type { Shape, Value } from "./onnx.ts";
import * as operations from "./operations.ts";
import type { TensorData } from "./session.ts";
import type { Tape } from "./tape.ts";

/** A right gradient stays below 2e-3 here; a sign, a factor or a missing term is off by 0.1 and more. */
const TOLERANCE = 5e-3;

function random(shape: readonly number[], phase = 0): TensorData {
  const length = shape.reduce((product, size) => product * size, 1);
  return { shape, data: Float32Array.from({ length }, (_, i) => Math.sin(12.9898 * (i + 1) + phase) * 0.8) };
}

function int64(shape: readonly number[], values: readonly number[]): TensorData {
  return { shape, data: BigInt64Array.from(values, BigInt) };
}

/** Declares one float32 input per feed and differentiates with respect to all of them. */
async function check(
  shapes: Readonly<Record<string, readonly number[]>>,
  outputShape: readonly number[],
  build: (tape: Tape, inputs: Readonly<Record<string, Value>>) => Value,
  extra: {
    readonly feeds?: Readonly<Record<string, TensorData>>;
    readonly declared?: Readonly<Record<string, Shape>>;
    readonly dimensions?: Readonly<Record<string, number>>;
  } = {},
): Promise<void> {
  const own = Object.fromEntries(
    Object.entries(shapes).map(([name, shape], i) => [name, random(shape, i)] as const),
  );
  const failure = await worstGradientError({
    build: (tape) => {
      const inputs = Object.fromEntries(
        Object.entries(shapes).map(([name, shape]) => [
          name,
          tape.graph.input(name, extra.declared?.[name] ?? shape),
        ]),
      );
      return { output: build(tape, inputs), parameters: Object.values(inputs) };
    },
    feeds: { ...own, ...extra.feeds },
    outputShape,
    ...(extra.dimensions && { dimensions: extra.dimensions }),
  });
  expect(failure.worst, failure.parameter).toBeLessThan(TOLERANCE);
}

test("add and multiply", async () => {
  await check({ a: [2, 3], b: [2, 3] }, [2, 3], (tape, { a, b }) =>
    operations.multiply(tape, operations.add(tape, a!, b!), b!),
  );
});

test("linear, with and without bias", async () => {
  await check({ x: [3, 4], w: [5, 4] }, [3, 5], (tape, { x, w }) => operations.linear(tape, x!, w!));
  await check({ x: [3, 4], w: [5, 4], b: [5] }, [3, 5], (tape, { x, w, b }) =>
    operations.linear(tape, x!, w!, b),
  );
});

test("adapted linear", async () => {
  await check({ x: [3, 4], w: [5, 4], A: [2, 4], B: [5, 2] }, [3, 5], (tape, { x, w, A, B }) =>
    operations.adaptedLinear(tape, x!, w!, { A: A!, B: B!, scale: 1.5 }),
  );
});

test("root mean square normalisation", async () => {
  await check({ x: [3, 4], w: [4] }, [3, 4], (tape, { x, w }) => operations.rmsNorm(tape, x!, w!, 1e-5));
});

test("rotary embedding", async () => {
  const angles = Array.from({ length: 10 }, (_, i) => i * 0.37);
  await check(
    { x: [3, 8] },
    [3, 8],
    (tape, { x }) =>
      operations.rotary(tape, x!, {
        positions: tape.graph.input("positions", [3, 1], "int64"),
        cosine: tape.graph.floats("cosine", [5, 2], Float32Array.from(angles, Math.cos)),
        sine: tape.graph.floats("sine", [5, 2], Float32Array.from(angles, Math.sin)),
      }),
    { feeds: { positions: int64([3, 1], [0, 4, 2]) } },
  );
});

test("swiglu", async () => {
  await check({ gate: [3, 4], up: [3, 4] }, [3, 4], (tape, { gate, up }) =>
    operations.swiglu(tape, gate!, up!),
  );
});

test("attention with one key head per head and with shared key heads", async () => {
  const mask = Float32Array.from([0, 0, 0, -1e9, 0, 0, 0, 0]);
  for (const keyHeads of [4, 2, 1]) {
    await check(
      { q: [2, 4, 2, 3], k: [2, keyHeads, 4, 3], v: [2, keyHeads, 4, 3] },
      [2, 4, 2, 3],
      (tape, { q, k, v }) => operations.attention(tape, q!, k!, v!, tape.graph.floats("mask", [2, 4], mask)),
    );
  }
});

test("reshape, swapped axes, joined parts, split rows and repetition", async () => {
  await check(
    { x: [6, 4], y: [1, 2, 2, 2] },
    [2, 2, 6, 2],
    (tape, { x, y }) => {
      const [head, tail] = operations.splitRows(tape, x!, ["P", "B*T"]);
      const heads = operations.swapMiddle(tape, operations.reshape(tape, tail, ["B", "T", 2, 2]));
      const first = operations.swapMiddle(tape, operations.reshape(tape, head, [1, "P", 2, 2]));
      const parts = [operations.repeatFirst(tape, first, "B"), heads, operations.repeatFirst(tape, y!, "B")];
      return operations.concat(tape, parts, { axis: 2, total: "all" });
    },
    { declared: { x: ["N", 4] }, dimensions: { P: 2, "B*T": 4, B: 2, T: 2 } },
  );
});

test("selected rows", async () => {
  await check(
    { x: [4, 3] },
    [2, 3],
    (tape, { x }) =>
      operations.selectRows(
        tape,
        x!,
        tape.graph.input("index", ["S"], "int64"),
        tape.graph.input("inverse", [4], "int64"),
      ),
    { feeds: { index: int64([2], [3, 1]), inverse: int64([4], [2, 1, 2, 0]) } },
  );
});

test("scaled log probabilities of targets", async () => {
  await check(
    { x: [3, 5] },
    [3, 1],
    (tape, { x }) => {
      const logits = operations.scale(tape, x!, tape.graph.scalar(1.7));
      return operations.tokenLogprobs(tape, logits, tape.graph.input("t", [3, 1], "int64")).logprobs;
    },
    { feeds: { t: int64([3, 1], [4, 0, 2]) } },
  );
});
