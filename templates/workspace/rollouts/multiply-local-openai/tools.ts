import { tool } from "@openai/agents";
import { z } from "zod";

/** Decimal places of the product, and of the labels in the data set. */
const DECIMALS = 4;

/** The product of two numbers, rounded to four decimal places; `-0` is `0`. */
export function product(a: number, b: number): number {
  return Number((a * b).toFixed(DECIMALS)) + 0;
}

export const multiply = tool({
  name: "multiply",
  description: "Multiply two numbers.",
  parameters: z.object({ a: z.number(), b: z.number() }),
  execute: async ({ a, b }) => String(product(a, b)),
});
