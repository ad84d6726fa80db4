import { createHash } from "node:crypto";
import {
  CheckpointSettings,
  EvalRunConfig,
  EvaluationAdvanced,
  EvaluationSettings,
  OsmosisError,
  SamplingSettings,
  SecretName,
  TrainingAdvanced,
  TrainingRunConfig,
  TrainingSettings,
  issuesOf,
  type Issue,
  type evalRoutes,
  type trainingRoutes,
} from "@osmosis/protocol";
import type { z } from "zod";

type EvalBody = z.output<NonNullable<typeof evalRoutes.submit.body>>;
type TrainingBody = z.output<NonNullable<typeof trainingRoutes.submit.body>>;

/** What was asked for, with every default filled in. */
export type Submission = {
  /** Values of secrets for this run only. */
  readonly provided: Readonly<Record<string, string>>;
  /** Hash of the request without the values of its secrets. */
  readonly requestSha256: string;
} & (
  | { readonly kind: "evaluation"; readonly config: EvalRunConfig }
  | { readonly kind: "training"; readonly config: TrainingRunConfig }
);

const EXPERIMENT_KEYS = ["rollout", "entrypoint", "model_path", "dataset", "branch", "commit_sha"];
const EVAL_KEYS = [EXPERIMENT_KEYS, keysOf(EvaluationSettings), keysOf(EvaluationAdvanced)].flat();
const TRAINING_KEYS = [
  EXPERIMENT_KEYS,
  keysOf(TrainingSettings),
  keysOf(SamplingSettings),
  keysOf(CheckpointSettings),
  keysOf(TrainingAdvanced),
].flat();

/** @throws {OsmosisError} VALIDATION with one issue for each fault. */
export function parseEvaluation(body: EvalBody): Submission {
  const config = parseConfig(
    EvalRunConfig,
    {
      experiment: body.experiment_config,
      evaluation: body.evaluation_config,
      env: body.env_config,
      secrets: { required: body.secrets?.required ?? [] },
      advanced: body.advanced_config,
    },
    { knownKeys: EVAL_KEYS, body },
  );
  return { kind: "evaluation", config, ...request(body) };
}

/** @throws {OsmosisError} VALIDATION with one issue for each fault. */
export function parseTraining(body: TrainingBody): Submission {
  const config = parseConfig(
    TrainingRunConfig,
    {
      experiment: body.experiment_config,
      training: body.training_config,
      sampling: body.sampling_config,
      checkpoints: body.checkpoints_config,
      env: body.env_config,
      secrets: { required: body.secrets?.required ?? [] },
      advanced: body.advanced_config,
    },
    { knownKeys: TRAINING_KEYS, body },
  );
  return { kind: "training", config, ...request(body) };
}

/** An error with a list of faults; its text tells the first. */
export function invalidConfig(issues: readonly Issue[]): OsmosisError {
  const [first] = issues;
  const more = issues.length > 1 ? ` (and ${issues.length - 1} more)` : "";
  const meant = first?.key_correction === undefined ? "" : `; did you mean ${first.key_correction}?`;
  return new OsmosisError(
    "VALIDATION",
    `The configuration cannot be run: ${first?.key ?? ""} ${first?.message ?? ""}${meant}${more}`,
    { hint: "Correct the configuration's file and submit it again.", details: { issues } },
  );
}

function parseConfig<T>(
  schema: z.ZodType<T>,
  tables: Readonly<Record<string, unknown>>,
  { knownKeys, body }: { knownKeys: readonly string[]; body: EvalBody | TrainingBody },
): T {
  const present = Object.fromEntries(Object.entries(tables).filter(([, value]) => value !== undefined));
  const parsed = schema.safeParse(present);
  const issues = [...(parsed.success ? [] : issuesOf(parsed.error, knownKeys)), ...providedIssues(body)];
  if (!parsed.success || issues.length > 0) throw invalidConfig(issues);
  return parsed.data;
}

function providedIssues({ secrets }: EvalBody | TrainingBody): Issue[] {
  return Object.entries(secrets?.provided ?? {}).flatMap(([name, value]): Issue[] => {
    if (!SecretName.safeParse(name).success) {
      return [
        {
          key: "secrets.provided",
          message: "holds a name that is not of upper-case letters, digits and underscores",
        },
      ];
    }
    if (!secrets?.required.includes(name)) {
      return [{ key: `secrets.provided.${name}`, message: "is not in secrets.required" }];
    }
    return value === "" ? [{ key: `secrets.provided.${name}`, message: "is empty" }] : [];
  });
}

function request(body: EvalBody | TrainingBody): Pick<Submission, "provided" | "requestSha256"> {
  const provided = body.secrets?.provided ?? {};
  const visible = {
    ...body,
    secrets: { required: body.secrets?.required, provided: Object.keys(provided).toSorted() },
  };
  return { provided, requestSha256: createHash("sha256").update(JSON.stringify(visible)).digest("hex") };
}

function keysOf(schema: { readonly shape: Readonly<Record<string, unknown>> }): string[] {
  return Object.keys(schema.shape);
}
