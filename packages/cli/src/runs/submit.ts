import { randomUUID } from "node:crypto";
import { evalRoutes, OsmosisError, trainingRoutes, type Checked } from "@osmosis/protocol";
import type { SubmitOptions } from "../commands/options.ts";
import { confirmOrRefuse } from "../confirm.ts";
import type { Context } from "../context.ts";
import { formatCount } from "../output/format.ts";
import type { OperationResult } from "../output/result.ts";
import { openWorkspaceSession, type WorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { readConfigFile, type RunConfigFile } from "./config-file.ts";
import { RUN_WORD, type RunKind } from "./kind.ts";
import { checkPushedCode } from "./pushed-code.ts";
import { hideSecrets, resolveSecrets, type ResolvedSecrets } from "./secrets.ts";
import { waitForRun } from "./wait.ts";

/**
 * Checks a configuration and everything that it names, in this order: workspace and login, the file, the code here and
 * as pushed, the secrets, and all of it by the platform, which says the commit that it would run. Then it asks, and
 * submits once.
 */
export async function submitRun(
  context: Context,
  kind: RunKind,
  configPath: string,
  options: SubmitOptions,
): Promise<OperationResult> {
  const session = await openWorkspaceSession(context);
  const { workspace, client } = session;
  const file = await readConfigFile(context, {
    root: workspace.root,
    kind,
    file: configPath,
    model: options.model,
  });
  const { experiment, secrets: needed } = file.config;
  const place = { root: workspace.root, experiment, configPath: file.path };
  const seen = await checkPushedCode(context, place);
  const secrets = await resolveSecrets(context, {
    client,
    required: needed.required,
    secretsFile: options.secretsFile,
  });
  const checked = await check(session, kind, file, secrets);
  // Origin did not answer, or is another platform, or somebody has just pushed: what counts is what will run.
  const code =
    seen.commit === checked.commit_sha
      ? seen
      : await checkPushedCode(context, { ...place, platformCommit: checked.commit_sha });
  const summary = { ...summaryOf(file, code.description, secrets), Size: sizeOf(checked) };
  const warnings = code.warnings.map(({ message }) => message);
  for (const warning of code.warnings) context.warn(warning.code, warning.message);
  const resource = {
    warnings,
    model_name: experiment.model_path,
    dataset_name: experiment.dataset,
    config: {
      path: file.path,
      rollout: experiment.rollout,
      entrypoint: experiment.entrypoint,
      model: experiment.model_path,
      dataset: experiment.dataset,
      branch: experiment.branch ?? null,
      commit_sha: experiment.commit_sha ?? null,
    },
  };
  const extras = workspaceExtras(workspace);
  if (options.dryRun === true) {
    return {
      kind: "operation",
      operation: `${kind}.submit`,
      status: "noop",
      message: `${file.path} is ready to be submitted. Nothing was started.`,
      fields: Object.entries(summary),
      resource: { ...resource, dry_run: true, checked },
      extras,
    };
  }
  const isSure = await confirmOrRefuse(context, {
    isYes: options.yes === true,
    question: `Start this ${RUN_WORD[kind]}?`,
    preset: true,
    summary,
    warnings,
  });
  if (!isSure) {
    return {
      kind: "operation",
      operation: `${kind}.submit`,
      status: "cancelled",
      message: "Cancelled.",
      extras,
    };
  }
  const submitted = await post(session, kind, file, secrets);
  if (options.wait === true) {
    context.note(`${submitted.name}: ${submitted.platform_url}`);
    const end = await waitForRun(context, session, kind, submitted.name);
    return {
      ...end,
      operation: `${kind}.submit`,
      resource: { ...resource, ...submitted, url: submitted.platform_url, ...end.resource },
      extras,
    };
  }
  return {
    kind: "operation",
    operation: `${kind}.submit`,
    status: "success",
    message: `Started the ${RUN_WORD[kind]} ${submitted.name}.`,
    fields: [["View", submitted.platform_url]],
    resource: { ...resource, ...submitted, url: submitted.platform_url },
    nextSteps: [
      { command: `osmosis ${kind} logs ${submitted.name} --follow`, description: "watch it" },
      { command: `osmosis ${kind} info ${submitted.name}`, description: "see its results" },
      { command: `osmosis ${kind} stop ${submitted.name}`, description: "stop it" },
    ],
    extras,
  };
}

type Submitted = {
  id: string;
  name: string;
  status: string;
  created_at: string;
  platform_url: string;
};

async function post(
  { client }: WorkspaceSession,
  kind: RunKind,
  file: RunConfigFile,
  secrets: ResolvedSecrets,
): Promise<Submitted> {
  const body = bodyOf(file, secrets);
  // The same key twice is the same run: when an answer is lost on its way, asking again starts nothing.
  const headers = { "idempotency-key": randomUUID() };
  const send = async (): Promise<Submitted> =>
    kind === "eval"
      ? await client.call(evalRoutes.submit, { headers, body })
      : await client.call(trainingRoutes.submit, { headers, body });
  try {
    return await send().catch((error: unknown) => {
      if (error instanceof OsmosisError && error.code === "NETWORK") return send();
      throw error;
    });
  } catch (error) {
    if (!(error instanceof OsmosisError)) throw error;
    throw hideSecrets(error, secrets);
  }
}

/** Asks the platform whether it would take the run: data set, model and secrets are known only there. */
async function check(
  { client }: WorkspaceSession,
  kind: RunKind,
  file: RunConfigFile,
  secrets: ResolvedSecrets,
): Promise<Checked> {
  const body = bodyOf(file, secrets);
  try {
    return kind === "eval"
      ? await client.call(evalRoutes.check, { body })
      : await client.call(trainingRoutes.check, { body });
  } catch (error) {
    if (!(error instanceof OsmosisError)) throw error;
    throw hideSecrets(error, secrets);
  }
}

function sizeOf(checked: Checked): string {
  const {
    rows,
    dataset_rows: all,
    steps,
    rollouts,
    rollouts_at_most: most,
    validation_rollouts: held,
  } = checked;
  const many = (count: number, word: string) => `${formatCount(count)} ${word}${count === 1 ? "" : "s"}`;
  return [
    ...(steps === null ? [] : [many(steps, "step")]),
    `${formatCount(rows)} of ${many(all, "row")}`,
    many(rollouts, "rollout"),
    ...(most > rollouts ? [`up to ${formatCount(most)} with the groups that dynamic_sampling replaces`] : []),
    ...(held > 0 ? [`${formatCount(held)} more for validation`] : []),
  ].join(", ");
}

/** The tables of the file as they stand there: the platform reads them a second time and names what is wrong. */
function bodyOf({ raw, config }: RunConfigFile, secrets: ResolvedSecrets) {
  const table = (name: string): Record<string, unknown> | undefined => {
    const value = raw[name];
    // Checked by the schema: a section is a table.
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  };
  return {
    experiment_config: table("experiment") ?? {},
    ...optional("evaluation_config", table("evaluation")),
    ...optional("training_config", table("training")),
    ...optional("sampling_config", table("sampling")),
    ...optional("checkpoints_config", table("checkpoints")),
    ...optional("advanced_config", table("advanced")),
    env_config: config.env,
    secrets: { required: [...config.secrets.required], provided: { ...secrets.provided } },
  };
}

function optional<Name extends string, Value>(
  name: Name,
  value: Value | undefined,
): Partial<Record<Name, Value>> {
  // A computed key widens to an index signature; it is exactly this one.
  return value === undefined ? {} : ({ [name]: value } as Partial<Record<Name, Value>>);
}

function summaryOf(
  file: RunConfigFile,
  code: string,
  secrets: ResolvedSecrets,
): Readonly<Record<string, string>> {
  const { experiment } = file.config;
  return {
    Config: file.path,
    Model: experiment.model_path,
    "Data set": experiment.dataset,
    Rollout: `${experiment.rollout}/${experiment.entrypoint}`,
    Code: code,
    ...(secrets.sources.length === 0 ? {} : { Secrets: secrets.sources.join(", ") }),
  };
}
