import { createContext, Script } from "node:vm";
import { Template } from "@huggingface/jinja";

/**
 * A Jinja template that comes from a stranger: it may loop for ever, or ask for a list that no memory holds. Rendering
 * it ends in either case.
 */
export type BoundedTemplate = {
  /** @throws {Error} in the template's own words, or that it did not end. */
  render(values: Readonly<Record<string, unknown>>): string;
};

/** A long conversation takes some 10 ms. */
export const RENDER_LIMIT_MS = 5000;

/** That of Jinja's own sandbox. */
const LONGEST_RANGE = 100_000;

/** @throws {Error} when the source is no valid Jinja. */
export function compileTemplate(source: string): BoundedTemplate {
  const template = new Template(source);
  // Jinja's `range` makes the whole list at once, and a process whose memory is full cannot be saved.
  template.parsed.body.unshift(...new Template("{% set range = limited_range %}").parsed.body);
  return {
    render: (values) =>
      endingIn(RENDER_LIMIT_MS, () => template.render({ ...values, limited_range: limitedRange })),
  };
}

const sandbox: { call?: () => void } = {};
const context = createContext(sandbox);
const CALL = new Script("call()");

/** Rendering is synchronous, so that no timer could end it; the time limit of a script stops whatever it calls. */
function endingIn<Result>(limitMs: number, call: () => Result): Result {
  let result: { readonly value: Result } | undefined;
  sandbox.call = () => {
    result = { value: call() };
  };
  try {
    CALL.runInContext(context, { timeout: limitMs });
  } catch (error) {
    if (!isTimeout(error)) throw error;
    throw new Error(`it did not end within ${limitMs / 1000} s`, { cause: error });
  } finally {
    delete sandbox.call;
  }
  if (result === undefined) throw new Error("it ended without a result");
  return result.value;
}

/** The error belongs to the script's realm, so that it is no instance of this one's Error. */
function isTimeout(error: unknown): boolean {
  return (
    typeof error === "object" &&
    error !== null &&
    "code" in error &&
    error.code === "ERR_SCRIPT_EXECUTION_TIMEOUT"
  );
}

function limitedRange(first: number, end?: number, step: number = 1): number[] {
  const [from, to] = end === undefined ? [0, first] : [first, end];
  const length = Math.max(0, Math.ceil((to - from) / step));
  if (!(length <= LONGEST_RANGE)) {
    throw new Error(`range() of ${length} numbers; it may have ${LONGEST_RANGE}`);
  }
  return Array.from({ length }, (_, index) => from + index * step);
}
