import { readFile, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  driveRollout,
  evaluateRun,
  openGateway,
  trainRun,
  withoutConversation,
  type Clock,
  type Gateway,
  type RunEnd,
  type RunPorts,
} from "@osmosis/controller";
import { loadChatCodec, type TrainableModel, type TrainingService } from "@osmosis/engine";
import {
  DatasetRow,
  RolloutRecord,
  type EvaluationJob,
  type ModelAssignment,
  type TrainingJob,
} from "@osmosis/protocol";
import { childEnvironment, prepareEnvironment } from "./environment.ts";
import type { FileCache } from "./file-cache.ts";
import { openFrozenModels, withinReach, type FrozenModels } from "./frozen-models.ts";
import type { RunLink } from "./platform-link.ts";
import { removeEmpty, rolloutRecorder } from "./record-rollouts.ts";
import type { RolloutTimeouts } from "./rollout-process.ts";
import { openRolloutService, type RolloutService } from "./rollout-service.ts";
import type { RunLog } from "./run-log.ts";
import { openPolicy } from "./sampling-policy.ts";
import { openSharedRollouts, type SharedRollouts } from "./shared-rollouts.ts";
import { trackRun } from "./trackers/track-run.ts";
import { openTrainedModel } from "./trained-model.ts";

/** What a worker has at hand for any run. */
export type WorkerTools = {
  readonly dataFolder: string;
  readonly files: FileCache;
  readonly openService: () => Promise<TrainingService>;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly rolloutTimeouts?: RolloutTimeouts;
  /** Its name, for errors that its machine is to blame for. */
  readonly worker?: string;
  /** How long a trainer by URL may be away. */
  readonly trainerPatienceMs?: number;
  readonly fetch: typeof fetch;
  readonly clock: Clock;
};

/**
 * Executes a claimed run to its end: prepares the commit's environment and the model, starts the rollout server, and
 * lets the controller drive it. Rejects with the signal's reason when the run is stopped from outside.
 *
 * @throws OsmosisError when the run cannot be started: code, data or model are not usable.
 */
export async function executeRun(
  job: EvaluationJob | TrainingJob,
  tools: WorkerTools,
  run: { readonly link: RunLink; readonly log: RunLog; readonly signal: AbortSignal },
): Promise<RunEnd> {
  const { link, log, signal } = run;
  const folder = join(tools.dataFolder, "runs", job.run_id);

  log.write("info", "prepare", `Preparing commit ${job.commit_sha.slice(0, 7)}`);
  const code = await prepareEnvironment({
    root: join(tools.dataFolder, "environments"),
    commit: job.commit_sha,
    source: (use, innerSignal) => link.source(use, innerSignal),
    environment: childEnvironment(tools.environment),
    onLine: (line) => log.write("info", "prepare", line),
    signal,
  });
  await using opened = new AsyncDisposableStack();
  const rollouts = await openRolloutService({
    folder: code,
    rollout: job.rollout,
    entrypoint: job.entrypoint,
    environment: childEnvironment(tools.environment),
    variables: { ...job.env, ...job.secrets },
    artifactRoot: join(folder, "artifacts"),
    onLine: (line, stream) => log.write(stream === "stderr" ? "warning" : "info", "rollout", line),
    ...(tools.rolloutTimeouts === undefined ? {} : { timeouts: tools.rolloutTimeouts }),
    ...(tools.worker === undefined ? {} : { worker: tools.worker }),
    fetch: tools.fetch,
    clock: tools.clock,
    warn: (text) => log.write("warning", "rollout", text),
    signal,
  });
  opened.use(rollouts);
  const died = new AbortController();
  void rollouts.failed.then((error) => died.abort(error));
  const [rows, recorded] = await Promise.all([
    link.lines("rows", DatasetRow, signal),
    link.lines("rollouts", job.kind === "evaluation" ? KeptRollout : RolloutRecord, signal),
  ]);
  log.write("info", "prepare", `Loading model ${job.model.name}`);
  const inner = {
    tools,
    opened,
    folder,
    rollouts,
    rows,
    recorded,
    link,
    log,
    signal: AbortSignal.any([signal, died.signal]),
  };
  try {
    if (job.kind === "evaluation") return await evaluate(job, inner);
    const tracking = { link, log, fetch: tools.fetch, clock: tools.clock, now: Date.now, signal };
    return await trackRun(job, tracking, (tracked) => train(job, { ...inner, link: tracked }));
  } finally {
    for (const name of ["model", "teacher", "state-in", "state", "checkpoints", "weights"]) {
      await rm(join(folder, name), { recursive: true, force: true });
    }
    await removeEmpty(join(folder, "artifacts"), folder);
  }
}

const KeptRollout = RolloutRecord.transform(withoutConversation);

type RunParts = {
  readonly tools: WorkerTools;
  /** Closes what is put into it when the run ends. */
  readonly opened: AsyncDisposableStack;
  readonly folder: string;
  readonly rollouts: RolloutService;
  readonly rows: readonly DatasetRow[];
  readonly recorded: readonly RolloutRecord[];
  readonly link: RunLink;
  readonly log: RunLog;
  readonly signal: AbortSignal;
};

async function evaluate(job: EvaluationJob, parts: RunParts): Promise<RunEnd> {
  const notice = (text: string) => parts.log.write("info", "trainer", text);
  const sampled = { ...job, trainer_choice: job.config.advanced };
  const policy = await openPolicy(sampled, { ...parts, notice });
  const gateway = parts.opened.use(await openGateway({ policy, clock: parts.tools.clock }));
  const shared = sharing(job.config.advanced.rollout_workers, parts);
  return evaluateRun({
    runId: job.run_id,
    config: job.config,
    gateway,
    server: parts.rollouts.server,
    rows: parts.rows,
    recorded: parts.recorded,
    ports: runPorts(parts, shared),
    ...(shared === undefined ? {} : { drive: shared.drive }),
    clock: parts.tools.clock,
    signal: parts.signal,
  });
}

async function train(job: TrainingJob, parts: RunParts): Promise<RunEnd> {
  const { model, ...place } = await openTrainedModel(job, parts);
  const frozen = await openFrozenModels(job, place, parts);
  const codec = await loadChatCodec(place.source.folder);
  const gateway = parts.opened.use(
    await openGateway({
      policy: { type: "local", name: job.model.name, sampler: withinReach(model, frozen), codec },
      clock: parts.tools.clock,
    }),
  );
  return trainWith(job, { model, frozen, gateway }, parts);
}

function trainWith(
  job: TrainingJob,
  {
    model,
    frozen,
    gateway,
  }: { readonly model: TrainableModel; readonly frozen: FrozenModels; readonly gateway: Gateway },
  parts: RunParts,
): Promise<RunEnd> {
  const { link, folder, signal } = parts;
  const { rollout_workers: workers, method } = job.config.advanced;
  const shared = sharing(workers, parts);
  return trainRun({
    runId: job.run_id,
    config: job.config,
    model: shared === undefined ? model : withPublishedWeights(model),
    ...frozen,
    ...(shared === undefined ? {} : { drive: shared.drive }),
    gateway,
    server: parts.rollouts.server,
    rows: parts.rows,
    recorded: parts.recorded,
    committedSteps: job.committed_steps,
    pastSteps: job.past_steps,
    ports: {
      ...runPorts(parts, shared),
      async commitStep({ step, metrics, examples, saveState }) {
        const files = await upload(`state/${step}`, saveState);
        await link.commitStep({ step, metrics: { ...metrics }, examples, state_files: files }, signal);
      },
      async checkpoint({ step, reward, validationReward, method, saveWeights }) {
        const files = await upload(`checkpoints/${step}`, async (target) => {
          await saveWeights(target);
          if (method === "lora") await nameBaseModel(target, job.model);
        });
        const checkpoint = { step, reward, validation_reward: validationReward, method, files };
        const { name } = await link.checkpoint(checkpoint, signal);
        parts.log.write("info", `step ${step}`, `Kept checkpoint ${name}`);
      },
    },
    clock: parts.tools.clock,
    signal,
  });

  /** The same model, whose new weights are the platform's, too, before anything is sampled with them. */
  function withPublishedWeights(inner: TrainableModel): TrainableModel {
    let published: number | undefined;
    return {
      ...inner,
      async syncSampler() {
        const version = await inner.syncSampler();
        if (version === published) return version;
        const files = await upload(`weights/${version}`, (target) => inner.saveWeights(target));
        await link.publishWeights({ version, method, files }, signal);
        published = version;
        return version;
      },
    };
  }

  /** Lets `save` write a folder, and brings its files to the platform under `prefix`. */
  async function upload(prefix: string, save: (folder: string) => Promise<void>): Promise<string[]> {
    const local = join(folder, prefix);
    await rm(local, { recursive: true, force: true });
    await save(local);
    const files = (await readdir(local)).sort();
    for (const name of files) await link.putFile(`${prefix}/${name}`, join(local, name), signal);
    await rm(local, { recursive: true, force: true });
    return files;
  }
}

/** An adapter names its base model; the engine knows only the folder that the base was in. */
async function nameBaseModel(folder: string, model: ModelAssignment): Promise<void> {
  if (model.type !== "local") return;
  const path = join(folder, "adapter_config.json");
  // Written by the engine a moment ago, or read by it from a trainer's archive.
  const text = await readFile(path, "utf8").catch(() => undefined);
  // Weights that stay at a trainer have none.
  if (text === undefined) return;
  const config = JSON.parse(text) as Record<string, unknown>;
  const named = { ...config, base_model_name_or_path: model.base_model };
  await writeFile(path, `${JSON.stringify(named, null, 2)}\n`);
}

function runPorts({ rollouts, link, log, signal }: RunParts, shared: SharedRollouts | undefined): RunPorts {
  const record = rolloutRecorder({
    artifactRoot: rollouts.artifactRoot,
    log,
    send: (records) => link.record(records, signal),
  });
  return {
    record: (records) => record(records.filter((one) => shared?.isRecorded(one) !== true)),
    log: ({ level, step, message, details }) => log.write(level, step, message, details ?? undefined),
  };
}

/** Where the configuration lets other workers help; undefined where this one rolls out alone. */
function sharing(workers: number, { opened, link, log, signal }: RunParts): SharedRollouts | undefined {
  if (workers < 2) return undefined;
  log.write("info", "prepare", `Up to ${workers} workers roll out for this run`);
  return opened.use(openSharedRollouts({ link, workers, drive: driveRollout, signal }));
}
