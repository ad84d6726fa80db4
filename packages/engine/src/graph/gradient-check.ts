import type { Value } from "./onnx.ts";
import { loadRuntime, type TensorData } from "./session.ts";
import { Tape } from "./tape.ts";

/**
 * Compares the emitted gradients of `sum(seed * output)` with central differences, for every element of every
 * parameter. Returns the largest `|emitted - measured|` divided by the largest gradient of that parameter: about 1e-3
 * for a right gradient in 32-bit floats, about 1 for a wrong one.
 */
export async function worstGradientError(options: {
  /** Sets the graph up; returns the value to differentiate and the parameters, which are inputs named in `feeds`. */
  readonly build: (tape: Tape) => { readonly output: Value; readonly parameters: readonly Value[] };
  readonly feeds: Readonly<Record<string, TensorData>>;
  readonly outputShape: readonly number[];
  readonly dimensions?: Readonly<Record<string, number>>;
  readonly step?: number;
}): Promise<{ readonly worst: number; readonly parameter: string }> {
  const { feeds, outputShape, dimensions = {}, step = 1e-2 } = options;
  const tape = new Tape();
  const { output, parameters } = options.build(tape);
  const seedOf = tape.graph.input("seed", output.shape);
  const gradients = tape.gradients(output, seedOf, parameters);
  tape.graph.output("output", output);
  for (const [i, parameter] of parameters.entries()) {
    const gradient = gradients[i];
    if (gradient === undefined) throw new Error(`no gradient reaches ${parameter.name}`);
    tape.graph.output(`gradient:${parameter.name}`, gradient);
  }
  const runtime = await loadRuntime({ threads: 1 });
  const session = await runtime.createSession(tape.graph.build());
  const elements = outputShape.reduce((product, size) => product * size, 1);
  const seed = Float32Array.from({ length: elements }, (_, i) => Math.sin(3 * i + 1));
  const run = () => session.run({ ...feeds, seed: { data: seed, shape: outputShape } }, dimensions);
  const value = async () => {
    const { output: values = new Float32Array() } = await run();
    return values.reduce((sum, element, i) => sum + element * (seed[i] ?? 0), 0);
  };

  const results = await run();
  let failure = { worst: 0, parameter: "" };
  for (const parameter of parameters) {
    const emitted = results[`gradient:${parameter.name}`];
    const data = feeds[parameter.name]?.data;
    if (emitted === undefined || !(data instanceof Float32Array))
      throw new Error(`no data for ${parameter.name}`);
    if (emitted.length !== data.length) throw new Error(`the gradient of ${parameter.name} has another size`);
    const largest = emitted.reduce((maximum, element) => Math.max(maximum, Math.abs(element)), 1e-6);
    for (const [i, original] of data.entries()) {
      data[i] = original + step;
      const above = await value();
      data[i] = original - step;
      const below = await value();
      data[i] = original;
      const error = Math.abs((above - below) / (2 * step) - (emitted[i] ?? 0)) / largest;
      if (error > failure.worst) failure = { worst: error, parameter: `${parameter.name}[${i}]` };
    }
  }
  await session.release();
  return failure;
}
