import { z } from "zod";

/**
 * A share or a mean with its 95 % interval and its denominator. A share, and a mean of rewards that are all 0 or 1, has
 * Wilson's interval, which stays inside 0 and 1; any other mean has Student's t, which may reach beyond the grader's scale.
 */
export const Estimate = z.object({
  value: z.number(),
  ci_low: z.number(),
  ci_high: z.number(),
  n: z.int(),
});
export type Estimate = z.infer<typeof Estimate>;
