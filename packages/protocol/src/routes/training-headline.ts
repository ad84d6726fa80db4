import { z } from "zod";
import { Estimate } from "./estimate.ts";

/** What a training run's newest validation says: one rollout of each held-out row. */
export const NewestValidation = z.object({
  step: z.int(),
  reward: z.number().nullable(),
  pass_rate: Estimate,
  /** 0 is greedy. */
  temperature: z.number(),
});
export type NewestValidation = z.infer<typeof NewestValidation>;

/** What the last step's own rollouts say: a batch of rows that the run trains on. */
export const LastStep = z.object({
  step: z.int(),
  reward: z.number().nullable(),
  pass_rate: z.number().nullable(),
  /** Rollouts that the pass rate is of. */
  n: z.int(),
  /** As configured; the last step of an epoch may have fewer. */
  prompts: z.int(),
  rollouts_per_prompt: z.int(),
  temperature: z.number(),
});
export type LastStep = z.infer<typeof LastStep>;
