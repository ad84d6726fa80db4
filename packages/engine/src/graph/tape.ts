import { GraphBuilder } from "./builder.ts";
import type { Value } from "./onnx.ts";

/**
 * The backward half of one operation: given the gradient of its output, emits the gradient of each input. `needed[i]`
 * says whether input i leads to a parameter; where it does not, return `undefined` and emit nothing.
 */
export type Backward = (gradient: Value, needed: readonly boolean[]) => readonly (Value | undefined)[];

type Entry = { readonly output: Value; readonly inputs: readonly Value[]; readonly backward: Backward };

/**
 * Reverse-mode automatic differentiation that emits ONNX. Operations (see `operations.ts`) emit their forward nodes
 * into `graph` and record how to go back; `gradients` then emits the backward nodes into the same graph.
 *
 * @example
 * const tape = new Tape();
 * const y = linear(tape, x, weight);
 * const gradients = tape.gradients(y, gradientOfY, [weight]);
 */
export class Tape {
  readonly graph = new GraphBuilder();
  readonly #entries: Entry[] = [];

  record(output: Value, inputs: readonly Value[], backward: Backward): Value {
    this.#entries.push({ output, inputs, backward });
    return output;
  }

  /**
   * Emits the gradient of `sum(seed * output)` with respect to each of `parameters`, in their order; `undefined` where
   * the output does not depend on it. Gradients that lead to none of them are never emitted.
   */
  gradients(output: Value, seed: Value, parameters: readonly Value[]): (Value | undefined)[] {
    const active = new Set(parameters.map((parameter) => parameter.name));
    for (const entry of this.#entries) {
      if (entry.inputs.some((input) => active.has(input.name))) active.add(entry.output.name);
    }
    const gradients = new Map([[output.name, seed]]);
    for (const entry of this.#entries.toReversed()) {
      const gradient = gradients.get(entry.output.name);
      if (gradient === undefined || !active.has(entry.output.name)) continue;
      const needed = entry.inputs.map((input) => active.has(input.name));
      const contributions = entry.backward(gradient, needed);
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
