import type { z } from "zod";
import { LARGEST_REWARD } from "./sample-limits.ts";

/** So large a bound is none; one that is larger would overflow. */
const NO_BOUND = 1e9;

/** So much a term of the objective may count: one that is larger drowns all others, and in the end overflows 32 bits. */
const LARGEST_COEFFICIENT = 1000;

/** The largest value of settings that reach an update. Those that may be negative have the same bound below. */
const LARGEST: Readonly<Record<string, number>> = {
  "evaluation.pass_threshold": LARGEST_REWARD,
  "advanced.lora_alpha": 65_536,
  "advanced.clip_high": NO_BOUND,
  "advanced.correction_cap": NO_BOUND,
  "advanced.kl_coef": LARGEST_COEFFICIENT,
  "advanced.teacher_coef": LARGEST_COEFFICIENT,
  "advanced.reward_coef": LARGEST_COEFFICIENT,
  "advanced.entropy_coef": LARGEST_COEFFICIENT,
  "advanced.grad_clip_norm": NO_BOUND,
  "advanced.weight_decay": 100,
  "advanced.reward_range.0": LARGEST_REWARD,
  "advanced.reward_range.1": LARGEST_REWARD,
  "advanced.early_stop_reward": LARGEST_REWARD,
};

/** Adds an issue for each value that no update could hold. */
export function refuseTooLarge(config: object, context: z.RefinementCtx): void {
  for (const [place, maximum] of Object.entries(LARGEST)) {
    const path = place.split(".").map((key) => (/^\d+$/.test(key) ? Number(key) : key));
    const input = path.reduce<unknown>(
      (table, key) => (typeof table === "object" && table !== null ? Reflect.get(table, key) : undefined),
      config,
    );
    if (typeof input !== "number") continue;
    const issue = { origin: "number", inclusive: true, path, input } as const;
    if (input > maximum) context.addIssue({ code: "too_big", maximum, ...issue });
    if (input < -maximum) context.addIssue({ code: "too_small", minimum: -maximum, ...issue });
  }
}
