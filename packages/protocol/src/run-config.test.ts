import { expect, test } from "vitest";
import { issuesOf } from "./issues.ts";
import {
  AcceptedEvalConfig,
  AcceptedTrainingConfig,
  EvalRunConfig,
  TrainingRunConfig,
} from "./run-config.ts";

const experiment = { rollout: "multiply", entrypoint: "main.ts", model_path: "m", dataset: "d" };
const evaluation = { experiment, secrets: { required: [] } };

function faultsOf(schema: typeof EvalRunConfig | typeof TrainingRunConfig, input: object): string[] {
  const parsed = schema.safeParse(input);
  return parsed.success ? [] : issuesOf(parsed.error).map(({ key, message }) => `${key} ${message}`);
}

test("a configuration of an experiment alone has every default", () => {
  expect(EvalRunConfig.parse(evaluation)).toMatchObject({
    evaluation: { n: 1, batch_size: 8, pass_threshold: 1 },
    advanced: { seed: 0, temperature: 0, top_p: 1, max_tokens: 1024, rollout_workers: 1 },
  });
  expect(TrainingRunConfig.parse({ experiment })).toMatchObject({
    training: { lr: 1e-5, n_samples_per_prompt: 8, rollout_batch_size: 16, max_response_length: 8192 },
    sampling: { rollout_temperature: 1, rollout_top_p: 1 },
    checkpoints: { eval_interval: 20, checkpoint_save_freq: 20 },
    advanced: { method: "lora", advantage: "centred", loss: "ppo", clip_low: 0.2, clip_high: 0.28 },
    secrets: { required: [] },
    env: {},
  });
});

test("the learning rate follows the method, the clip bounds the loss, and what is given stands", () => {
  const parsed = (advanced: object, training = {}) =>
    TrainingRunConfig.parse({ experiment, training, advanced });
  expect(parsed({ method: "full" }).training.lr).toBe(1e-6);
  expect(parsed({ method: "full" }, { lr: 3e-4 }).training.lr).toBe(3e-4);
  expect(parsed({ loss: "gspo" }).advanced).toMatchObject({ clip_low: 3e-4, clip_high: 4e-4 });
  expect(parsed({ loss: "gspo", clip_low: 0.1 }).advanced).toMatchObject({ clip_low: 0.1, clip_high: 4e-4 });
});

test("a trainer's key is a secret that the run requires", () => {
  const advanced = { trainer: "https://trainer.example", trainer_api_key: "TRAINER_KEY" };
  expect(faultsOf(TrainingRunConfig, { experiment, advanced })).toEqual([
    "advanced.trainer_api_key names the secret TRAINER_KEY, which [secrets].required does not list",
  ]);
  expect(
    faultsOf(TrainingRunConfig, { experiment, advanced, secrets: { required: ["TRAINER_KEY"] } }),
  ).toEqual([]);
});

test("an evaluation chooses a trainer by the same rules", () => {
  const faults = (advanced: object, required: string[] = []) =>
    faultsOf(EvalRunConfig, { experiment, secrets: { required }, advanced });
  const advanced = { trainer: "https://trainer.example", trainer_api_key: "TRAINER_KEY", trainer_model: "m" };
  expect(faults(advanced)).toEqual([
    "advanced.trainer_api_key names the secret TRAINER_KEY, which [secrets].required does not list",
  ]);
  expect(faults({ ...advanced, rollout_workers: 2 }, ["TRAINER_KEY"])).toEqual([]);
  expect(faults({ trainer: "https://user:secret@trainer.example" })).toEqual([
    expect.stringContaining("password"),
  ]);
  expect(faults({ trainer: "somewhere" })).toEqual([expect.stringContaining("http(s) address")]);
  expect(faults({ trainer: "embedded" })).toEqual([]);
});

test("numbers that no gradient could hold are refused, each with its largest", () => {
  const huge = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, 1e308]));
  const largest = (names: readonly string[], limit: string) =>
    names.map((name) => `advanced.${name} Too big: expected number to be <=${limit}`);
  const coefficients = ["kl_coef", "teacher_coef", "reward_coef", "entropy_coef"];
  const bounds = ["clip_high", "correction_cap", "grad_clip_norm", "early_stop_reward"];
  const faults = (advanced: object) => faultsOf(TrainingRunConfig, { experiment, advanced });
  expect(faults(huge(coefficients))).toEqual(largest(coefficients, "1000"));
  expect(faults(huge(bounds))).toEqual(largest(bounds, "1000000000"));
  expect(faults(huge(["lora_alpha", "weight_decay"]))).toEqual([
    ...largest(["lora_alpha"], "65536"),
    ...largest(["weight_decay"], "100"),
  ]);
  expect(faults({ reward_range: [-1e308, 1] })).toEqual([
    "advanced.reward_range.0 Too small: expected number to be >=-1000000000",
  ]);
  expect(faultsOf(EvalRunConfig, { ...evaluation, evaluation: { pass_threshold: 1e308 } })).toEqual([
    "evaluation.pass_threshold Too big: expected number to be <=1000000000",
  ]);
  const most = Object.fromEntries(bounds.slice(0, 3).map((name) => [name, 1e9]));
  expect(faults({ ...most, kl_coef: 1000, reward_range: [-1e9, 1e9] })).toEqual([]);
});

test("runs that were accepted before a bound of today keep their values", () => {
  const advanced = {
    kl_coef: 1e4,
    clip_high: 1e12,
    lora_alpha: 1e6,
    weight_decay: 200,
    reward_range: [-1e12, 1e12],
  };
  expect(TrainingRunConfig.safeParse({ experiment, advanced }).success).toBe(false);
  expect(AcceptedTrainingConfig.parse({ experiment, advanced }).advanced).toMatchObject(advanced);
  const old = { ...evaluation, evaluation: { pass_threshold: 1e12 } };
  expect(EvalRunConfig.safeParse(old).success).toBe(false);
  expect(AcceptedEvalConfig.parse(old).evaluation).toMatchObject({ pass_threshold: 1e12 });
});

test("settings that would teach nothing, or the opposite, are refused", () => {
  const faults = (advanced: object, training = {}) =>
    faultsOf(TrainingRunConfig, { experiment, training, advanced });
  expect(faults({ overlong_cache: 100 }, { max_response_length: 99 })).toEqual([
    "advanced.overlong_cache may not exceed [training].max_response_length",
  ]);
  expect(faults({ overlong_cache: 100, advantage: "max_rl" })).toEqual([
    "advanced.overlong_cache makes rewards negative, which the advantage max_rl cannot take",
  ]);
  const nothing = "advanced.reward_coef is 0, and there is no teacher_model: nothing would be learned";
  expect(faults({ reward_coef: 0 })).toEqual([nothing]);
  expect(faults({ reward_coef: 0, teacher_model: "large", teacher_coef: 0 })).toEqual([nothing]);
  expect(faults({ reward_coef: 0, teacher_model: "large" })).toEqual([]);
});

test("what excludes each other is refused before anything is queued", () => {
  const faults = (advanced: object) => faultsOf(TrainingRunConfig, { experiment, advanced });
  const trainer = "http://trainer.example";
  expect(faults({ trainer, rollout_workers: 2 })).toEqual([
    "advanced.rollout_workers must be 1 with a trainer by URL (trainer): the weights do not leave it, so other workers cannot roll out",
  ]);
  expect(faults({ trainer, method: "full" })).toEqual([
    'advanced.method must be "lora" with a trainer by URL (trainer); it trains adapters only',
  ]);
  expect(faults({ trainer: "embedded", rollout_workers: 2, method: "full" })).toEqual([]);
  expect(faults({ advantage: "max_rl", reward_range: [-1, 1] })).toEqual([
    "advanced.reward_range allows rewards below 0, which the advantage max_rl cannot take",
  ]);
  expect(faults({ early_stop_reward: 7, reward_range: [0, 1] })).toEqual([
    "advanced.early_stop_reward is 7, which no reward reaches: reward_range ends at 1",
  ]);
  expect(faults({ wandb_entity: "team" })).toEqual([
    "advanced.wandb_entity does nothing without wandb_project",
  ]);
});

test("an address of another server holds no password, since configurations are shown", () => {
  for (const key of ["mlflow_url", "wandb_url", "trainer"]) {
    const faults = (url: string) => faultsOf(TrainingRunConfig, { experiment, advanced: { [key]: url } });
    expect(faults("https://user:secret@tracker.example")).toEqual([expect.stringContaining("password")]);
    expect(faults("ftp://tracker.example")).toEqual([expect.stringContaining("http(s) address")]);
    expect(faults("http://127.0.0.1:5000/base")).toEqual([]);
  }
});

test("an unknown key is refused in every table", () => {
  for (const table of ["experiment", "training", "sampling", "checkpoints", "secrets", "advanced"]) {
    const input = { experiment, [table]: { ...(table === "experiment" ? experiment : {}), tempo: 1 } };
    expect(faultsOf(TrainingRunConfig, input)).toContain(`${table}.tempo is not a known key`);
  }
});

test("a temperature is one that can be sampled with", () => {
  const training = (rollout_temperature: number) =>
    faultsOf(TrainingRunConfig, { experiment, sampling: { rollout_temperature } });
  expect([0.001, 1, 2].flatMap(training)).toEqual([]);
  expect([0, 0.0001, 2.1].map((value) => training(value).length)).toEqual([1, 1, 1]);
  const greedy = (temperature: number) =>
    faultsOf(EvalRunConfig, { ...evaluation, advanced: { temperature } });
  expect([0, 0.001, 2].flatMap(greedy)).toEqual([]);
  expect(greedy(0.0001)).toEqual(["advanced.temperature must be 0 or at least 0.001"]);
});

test("a branch and a commit, or a variable and a secret of one name, exclude each other", () => {
  const both = { ...experiment, branch: "main", commit_sha: "0123456" };
  expect(faultsOf(TrainingRunConfig, { experiment: both })).toEqual([
    "experiment.commit_sha give either branch or commit_sha, not both",
  ]);
  const twice = { ...evaluation, env: { KEY: "1" }, secrets: { required: ["KEY"] } };
  expect(faultsOf(EvalRunConfig, twice)).toEqual(["env.KEY is a required secret, too; keep one of the two"]);
});
