/** What `contradictions` reads of a training configuration. */
type Settings = {
  readonly training: { readonly max_response_length: number; readonly n_samples_per_prompt: number };
  /** The secrets that the run requires. */
  readonly required: readonly string[];
  readonly advanced: {
    readonly method: "lora" | "full";
    readonly trainer?: string | undefined;
    readonly trainer_api_key?: string | undefined;
    readonly group_min_size: number;
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
    readonly wandb_url: string;
    readonly mlflow_url?: string | undefined;
  };
};

export type Contradiction = { readonly key: keyof Settings["advanced"]; readonly message: string };

/** Settings of `[advanced]` that exclude each other, lack another one, or teach nothing or the opposite of what was meant. */
export function contradictions(settings: Settings): Contradiction[] {
  const { trainer } = settings.advanced;
  return [
    ...ofSecrets(settings),
    ...ofRewards(settings),
    ...(trainer === undefined || trainer === "embedded"
      ? []
      : contradictionsByUrl(settings.advanced, "trainer")),
  ];
}

/** Whoever has to prove himself at another server does it by a secret: configurations are shown. */
function ofSecrets({ advanced, required }: Settings): Contradiction[] {
  const { wandb_project: project } = advanced;
  const found: Contradiction[] = [];
  if (project !== undefined && !required.includes("WANDB_API_KEY")) {
    found.push({
      key: "wandb_project",
      message: "needs the secret WANDB_API_KEY, which [secrets].required does not list",
    });
  }
  if (advanced.wandb_entity !== undefined && project === undefined) {
    found.push({ key: "wandb_entity", message: "does nothing without wandb_project" });
  }
  for (const place of ["wandb_url", "mlflow_url"] as const) {
    const url = advanced[place];
    if (url !== undefined && hasCredentials(url)) found.push({ key: place, message: NO_CREDENTIALS });
  }
  return [...found, ...trainerContradictions(advanced, required)];
}

const NO_CREDENTIALS = "may hold no user name or password; put a token into a secret";

/** What is wrong with the choice of a trainer, whether it trains or is sampled from. */
export function trainerContradictions(
  { trainer, trainer_api_key: key }: Pick<Settings["advanced"], "trainer" | "trainer_api_key">,
  required: readonly string[],
): Contradiction[] {
  const found: Contradiction[] = [];
  if (key !== undefined && !required.includes(key)) {
    found.push({
      key: "trainer_api_key",
      message: `names the secret ${key}, which [secrets].required does not list`,
    });
  }
  if (trainer !== undefined && trainer !== "embedded" && hasCredentials(trainer)) {
    found.push({ key: "trainer", message: NO_CREDENTIALS });
  }
  return found;
}

/** What is no address is refused for that. */
function hasCredentials(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { username, password } = new URL(url);
  return username !== "" || password !== "";
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
  if (advanced.group_min_size > training.n_samples_per_prompt) {
    found.push({
      key: "group_min_size",
      message: `is ${advanced.group_min_size}, but a group has ${training.n_samples_per_prompt} rollouts (training.n_samples_per_prompt)`,
    });
  }
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
