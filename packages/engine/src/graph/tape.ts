import { GraphBuilder } from "./builder.ts";
import type { Value } from "./onnx.ts";

/**
 * The backward half of one operation: given the gradient of its output, emits the gradient of each input. `needed[i]`
 * says whether input i leads to a parameter; where it does not, return `undefined` and emit nothing.
 */
export type Backward = (gradient: Value, needed: readonly boolean[]) => readonly (Value | undefined)[];

type Entry = {
  readonly outputs: readonly Value[];
  readonly inputs: readonly Value[];
  readonly backward: (
    gradients: readonly (Value | undefined)[],
    needed: readonly boolean[],
  ) => readonly (Value | undefined)[];
};

/**
 * Reverse-mode automatic differentiation that emits ONNX. Operations (see `operations.ts`) emit their forward nodes
 * into `graph` and record how to go back; `gradients` then emits the backward nodes into the same graph.
 *
 * @example
 * const tape = new Tape();
 * const y = linear(tape, x, weight);
 * const [gradientOfWeight] = tape.gradients(y, gradientOfY, [weight]);
 */
export class Tape {
  readonly graph = new GraphBuilder();
  readonly #entries: Entry[] = [];

  /** Records an operation with one output, and returns that output. */
  record(output: Value, inputs: readonly Value[], backward: Backward): Value {
    this.recordMany([output], inputs, ([gradient], needed) => (gradient ? backward(gradient, needed) : []));
    return output;
  }

  /** Records an operation with several outputs; the gradient of one that leads nowhere is `undefined`. */
  recordMany(outputs: readonly Value[], inputs: readonly Value[], backward: Entry["backward"]): void {
    this.#entries.push({ outputs, inputs, backward });
  }

  /**
   * Emits the gradient of `sum(seed * output)` with respect to each of `parameters`, in their order; `undefined` where
   * the output does not depend on it. Gradients that lead to none of them are never emitted.
   */
  gradients(output: Value, seed: Value, parameters: readonly Value[]): (Value | undefined)[] {
    const active = new Set(parameters.map((parameter) => parameter.name));
    for (const entry of this.#entries) {
      if (!entry.inputs.some((input) => active.has(input.name))) continue;
      for (const produced of entry.outputs) active.add(produced.name);
    }
    const gradients = new Map([[output.name, seed]]);
    for (const entry of this.#entries.toReversed()) {
      const incoming = entry.outputs.map((produced) => gradients.get(produced.name));
      const needed = entry.inputs.map((input) => active.has(input.name));
      if (!needed.includes(true) || incoming.every((gradient) => gradient === undefined)) continue;
      const contributions = entry.backward(incoming, needed);
      for (const [i, input] of entry.inputs.entries()) {
        const contribution = contributions[i];
        if (!needed[i] || contribution === undefined) continue;
        const earlier = gradients.get(input.name);
        gradients.set(
          input.name,
          earlier === undefined
            ? contribution
            : this.graph.node("Add", [earlier, contribution], { shape: input.shape }),
        );
      }
    }
    return parameters.map((parameter) => gradients.get(parameter.name));
  }
}
