import type { Context } from "../context.ts";
import type { Result } from "../output/result.ts";

/** Wraps a command's work: makes the context, and renders what the work answers. */
export type Run = <Args extends unknown[]>(
  work: (context: Context, ...args: Args) => Promise<Result>,
) => (...args: Args) => Promise<void>;
