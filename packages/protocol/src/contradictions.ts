/** What `contradictions` reads of a training configuration. */
type Settings = {
  readonly training: { readonly max_response_length: number };
  readonly advanced: {
    readonly method: "lora" | "full";
    readonly trainer?: string | undefined;
    readonly rollout_workers: number;
    readonly overlong_cache: number;
    readonly advantage: string;
    readonly reward_coef: number;
    readonly kl_coef: number;
    readonly entropy_coef: number;
    readonly teacher_model?: string | undefined;
    readonly teacher_coef: number;
    readonly reward_range?: readonly [number, number] | undefined;
    readonly early_stop_reward?: number | undefined;
    readonly wandb_project?: string | undefined;
    readonly wandb_entity?: string | undefined;
  };
};

export type Contradiction = { readonly key: keyof Settings["advanced"]; readonly message: string };

/** Settings of `[advanced]` that exclude each other, would teach nothing, or the opposite of what was meant. */
export function contradictions({ training, advanced }: Settings): Contradiction[] {
  return [
    ...ofRewards({ training, advanced }),
    ...(advanced.trainer === undefined || advanced.trainer === "embedded"
      ? []
      : contradictionsByUrl(advanced, "trainer")),
    ...(advanced.wandb_entity !== undefined && advanced.wandb_project === undefined
      ? [{ key: "wandb_entity" as const, message: "does nothing without wandb_project" }]
      : []),
  ];
}

/**
 * What a trainer by URL cannot do.
 *
 * @param why - the setting that chose the trainer
 */
export function contradictionsByUrl(
  { method, rollout_workers: workers }: Pick<Settings["advanced"], "method" | "rollout_workers">,
  why: string,
): Contradiction[] {
  const found: Contradiction[] = [];
  if (method === "full") {
    found.push({
      key: "method",
      message: `must be "lora" with a trainer by URL (${why}); it trains adapters only`,
    });
  }
  if (workers > 1) {
    found.push({
      key: "rollout_workers",
      message: `must be 1 with a trainer by URL (${why}): the weights do not leave it, so other workers cannot roll out`,
    });
  }
  return found;
}

function ofRewards({ training, advanced }: Settings): Contradiction[] {
  const { overlong_cache: cache, advantage, reward_coef, kl_coef, entropy_coef } = advanced;
  const { reward_range: range, early_stop_reward: enough } = advanced;
  const hasTeacher = advanced.teacher_model !== undefined && advanced.teacher_coef > 0;
  const found: Contradiction[] = [];
  if (cache > training.max_response_length) {
    found.push({ key: "overlong_cache", message: "may not exceed [training].max_response_length" });
  }
  if (cache > 0 && advantage === "max_rl") {
    found.push({
      key: "overlong_cache",
      message: "makes rewards negative, which the advantage max_rl cannot take",
    });
  }
  if (range !== undefined && range[0] < 0 && advantage === "max_rl") {
    found.push({
      key: "reward_range",
      message: "allows rewards below 0, which the advantage max_rl cannot take",
    });
  }
  if (range !== undefined && enough !== undefined && enough > range[1]) {
    found.push({
      key: "early_stop_reward",
      message: `is ${enough}, which no reward reaches: reward_range ends at ${range[1]}`,
    });
  }
  if (reward_coef === 0 && !hasTeacher && kl_coef === 0 && entropy_coef === 0) {
    found.push({
      key: "reward_coef",
      message: "is 0, and there is no teacher_model: nothing would be learned",
    });
  }
  return found;
}
