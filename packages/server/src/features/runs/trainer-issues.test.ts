import { expect, test } from "vitest";
import type { RunModel } from "../models/service.ts";
import { parseEvaluation, parseTraining, type Submission } from "./submission.ts";
import { trainerIssues } from "./trainer-issues.ts";

const experiment_config = { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" };
const training = (advanced_config: object = {}): Submission =>
  parseTraining({ experiment_config, advanced_config: { ...advanced_config } });
const evaluation = (advanced_config: object = {}): Submission =>
  parseEvaluation({ experiment_config, advanced_config: { ...advanced_config } });

const files = (...names: readonly string[]) =>
  names.map((name) => ({ name, key: name, size_bytes: 1, sha256: "0" }));
const base = (name: string, ...names: readonly string[]): Extract<RunModel, { type: "local" }> => ({
  type: "local",
  id: name,
  name,
  base_model: name,
  base_files: files("config.json", ...names),
  adapter_files: [],
});

const WHOLE = base("osmosis/tiny", "model.safetensors");
const WEIGHTLESS = base("lab/large");
/** The trainer handed out its adapter, but what lies beneath it is not here. */
const CHECKPOINT: RunModel = {
  ...WEIGHTLESS,
  name: "run-step-1",
  adapter_files: files("adapter_model.safetensors", "remote-weights.json"),
};
const URL = "https://trainer.example.com";

/** Issues as `key message`, on a platform with a trainer of its own and on one without. */
function issues(submission: Submission, model: RunModel, teacher?: RunModel) {
  const [withOne, without] = [{ trainer: { url: URL } }, {}].map((config) =>
    trainerIssues(config, submission, { model, teacher }).map(({ key, message }) => `${key} ${message}`),
  );
  return { withOne, without };
}

const NONE = { withOne: [], without: [] };

test("a model without weights here is trained and sampled at a trainer by URL, the run's or the platform's", () => {
  for (const submission of [training, evaluation]) {
    expect(issues(submission({ trainer: URL, trainer_model: "Lab/Large" }), WEIGHTLESS)).toEqual(NONE);
    expect(issues(submission(), WEIGHTLESS)).toEqual({
      withOne: [],
      without: [expect.stringMatching(/^experiment\.model_path names lab\/large, .* OSMOSIS_TRAINER_URL$/)],
    });
    const refused = [
      expect.stringMatching(/^advanced\.trainer is "embedded", but lab\/large has no weights here/),
    ];
    expect(issues(submission({ trainer: "embedded" }), WEIGHTLESS)).toEqual({
      withOne: refused,
      without: refused,
    });
  }
});

test("its checkpoints go to the trainer that made them, and nowhere else", () => {
  for (const submission of [training, evaluation]) {
    expect(issues(submission(), CHECKPOINT)).toEqual(NONE);
    expect(issues(submission({ trainer: "embedded" }), CHECKPOINT).withOne).toHaveLength(1);
  }
  const refused = [
    expect.stringMatching(
      /^advanced\.rollout_workers must be 1 with a trainer by URL \(that of run-step-1\)/,
    ),
  ];
  expect(issues(training({ rollout_workers: 2 }), CHECKPOINT)).toEqual({
    withOne: refused,
    without: refused,
  });
  expect(issues(evaluation({ rollout_workers: 2 }), CHECKPOINT)).toEqual(NONE);
});

test("a model with weights is refused nothing, but for what the platform's trainer cannot do", () => {
  expect(issues(training({ rollout_workers: 2 }), WHOLE)).toEqual({
    withOne: [expect.stringMatching(/\(the platform's; \[advanced\]\.trainer = "embedded" uses the engine/)],
    without: [],
  });
  expect(issues(training({ rollout_workers: 2, trainer: "embedded" }), WHOLE)).toEqual(NONE);
  expect(issues(evaluation({ trainer: "embedded", rollout_workers: 2 }), WHOLE)).toEqual(NONE);
});

test("a teacher without weights here teaches at a trainer by URL only", () => {
  const refused = [
    expect.stringMatching(/^advanced\.teacher_model names lab\/large, which has no weights here/),
  ];
  const run = (trainer?: string) =>
    training({ teacher_model: "lab/large", ...(trainer !== undefined && { trainer }) });
  expect(issues(run("embedded"), WHOLE, WEIGHTLESS)).toEqual({ withOne: refused, without: refused });
  expect(issues(run(), WHOLE, WEIGHTLESS)).toEqual({ withOne: [], without: refused });
  expect(issues(run(URL), WHOLE, WEIGHTLESS)).toEqual(NONE);
});
