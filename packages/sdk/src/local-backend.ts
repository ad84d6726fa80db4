import { OsmosisError, errorMessage } from "@osmosis/protocol";
import {
  cancelReasonOf,
  execute,
  type ExecutionParts,
  type RolloutJob,
  type RolloutResult,
} from "./execution.ts";
import type { Grader } from "./grader.ts";
import { monotonicNow, writeLog } from "./io.ts";
import type { AgentWorkflow } from "./workflow.ts";

export type LocalBackendOptions<WorkflowConfig, GraderConfig> = {
  readonly workflow: new () => AgentWorkflow<WorkflowConfig>;
  /** Copied for every execution. Without a grader, rollouts that ask for grading fail. */
  readonly grader?: new () => Grader<GraderConfig>;
  /** How many executions run at once, workflow and grader together; null means no bound. */
  readonly concurrency?: number | null;
  /** How many may wait for their turn before more are refused. */
  readonly maxQueued?: number;
  /** How long an execution may take to stop when it is out of time or cancelled, before its slot is given away. */
  readonly graceMs?: number;
  readonly log?: (text: string) => void;
  readonly now?: () => number;
} & ConfigField<"workflowConfig", WorkflowConfig> &
  ConfigField<"graderConfig", GraderConfig>;

/** Required, unless the config may be undefined. */
type ConfigField<Name extends string, Config> = undefined extends Config
  ? { readonly [Key in Name]?: Config }
  : { readonly [Key in Name]: Config };

export type BackendHealth = {
  readonly backend: "local";
  readonly workflow: string;
  readonly grader: string | null;
  readonly maxConcurrent: number | null;
  readonly queued: number;
  readonly running: number;
};

export type ExecuteOptions = {
  /** Aborted with a `CancelReason`. */
  readonly signal: AbortSignal;
  readonly onStatus?: (status: "running" | "grading") => void;
};

/**
 * Executes workflow and grader in this process. Both are constructed anew for every rollout, with a copy of their config;
 * executions share the process, so module-level state is theirs to keep apart.
 */
export class LocalBackend<WorkflowConfig = undefined, GraderConfig = undefined> {
  readonly #parts: ExecutionParts;
  readonly #concurrency: number | null;
  readonly #maxQueued: number;
  readonly #graceMs: number;
  readonly #log: (text: string) => void;
  readonly #now: () => number;
  readonly #queue: (() => void)[] = [];
  #running = 0;

  /** @throws OsmosisError `VALIDATION` when a config cannot be copied or the concurrency is not positive. */
  constructor(options: LocalBackendOptions<WorkflowConfig, GraderConfig>) {
    const {
      concurrency = 128,
      maxQueued = 4096,
      graceMs = 2000,
      log = writeLog,
      now = monotonicNow,
    } = options;
    if (concurrency !== null && !(Number.isInteger(concurrency) && concurrency >= 1)) {
      throw new OsmosisError("VALIDATION", `LocalBackend was given the concurrency ${concurrency}.`, {
        hint: "It is a whole number of at least 1, or null for no bound.",
      });
    }
    this.#parts = {
      workflow: options.workflow,
      workflowConfig: copyable(options.workflowConfig, "workflowConfig"),
      grader: options.grader,
      graderConfig: copyable(options.graderConfig, "graderConfig"),
    };
    this.#concurrency = concurrency;
    this.#maxQueued = maxQueued;
    this.#graceMs = graceMs;
    this.#log = log;
    this.#now = now;
  }

  /** False when another rollout would have to wait behind a full queue. */
  hasCapacity(): boolean {
    return this.#hasFreeSlot() || this.#queue.length < this.#maxQueued;
  }

  health(): BackendHealth {
    return {
      backend: "local",
      workflow: this.#parts.workflow.name,
      grader: this.#parts.grader?.name ?? null,
      maxConcurrent: this.#concurrency,
      queued: this.#queue.length,
      running: this.#running,
    };
  }

  /**
   * Executes one rollout as soon as there is a slot. It never throws: failures of user code, timeouts and cancellation are
   * results. The slot is held through workflow and grading.
   */
  async execute(job: RolloutJob, options: ExecuteOptions): Promise<RolloutResult> {
    const { signal, onStatus = () => {} } = options;
    const admittedAt = this.#now();
    const expired = await this.#acquireSlot(signal, job.agentTimeoutMs);
    const queuedMs = this.#now() - admittedAt;
    if (expired !== "acquired") return unstarted(expired, job, { queuedMs, signal });
    try {
      return await execute(job, this.#parts, {
        signal,
        queuedMs,
        graceMs: this.#graceMs,
        now: this.#now,
        onStatus,
        log: this.#log,
      });
    } finally {
      this.#releaseSlot();
    }
  }

  #hasFreeSlot(): boolean {
    return this.#concurrency === null || this.#running < this.#concurrency;
  }

  async #acquireSlot(
    signal: AbortSignal,
    timeoutMs: number | null,
  ): Promise<"acquired" | "cancelled" | "timeout"> {
    if (signal.aborted) return "cancelled";
    if (this.#hasFreeSlot()) {
      this.#running += 1;
      return "acquired";
    }
    const turn = Promise.withResolvers<"acquired" | "cancelled" | "timeout">();
    const grant = () => turn.resolve("acquired");
    const leave = (why: "cancelled" | "timeout") => {
      const index = this.#queue.indexOf(grant);
      if (index === -1) return;
      this.#queue.splice(index, 1);
      turn.resolve(why);
    };
    const cancel = () => leave("cancelled");
    this.#queue.push(grant);
    signal.addEventListener("abort", cancel, { once: true });
    const timer =
      timeoutMs === null
        ? undefined
        : setTimeout(() => leave("timeout"), Math.min(Math.max(timeoutMs, 0), 2 ** 31 - 1));
    try {
      return await turn.promise;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", cancel);
    }
  }

  /** A slot passes straight to the first in the queue. */
  #releaseSlot(): void {
    const next = this.#queue.shift();
    if (next) next();
    else this.#running -= 1;
  }
}

function unstarted(
  why: "cancelled" | "timeout",
  job: RolloutJob,
  { queuedMs, signal }: { queuedMs: number; signal: AbortSignal },
): RolloutResult {
  if (why === "cancelled")
    return { status: "cancelled", reason: cancelReasonOf(signal.reason), sample: null };
  const message = `workflow exceeded its ${(job.agentTimeoutMs ?? 0) / 1000}s deadline in the queue (${(queuedMs / 1000).toFixed(1)}s)`;
  return { status: "failure", failure: { phase: "workflow", category: "timeout", message }, sample: null };
}

function copyable(config: unknown, name: string): unknown {
  try {
    return structuredClone(config);
  } catch (error) {
    throw new OsmosisError(
      "VALIDATION",
      `${name} cannot be copied for every rollout: ${errorMessage(error)}`,
      {
        hint: "Keep to plain data; construct clients and functions inside the workflow.",
      },
    );
  }
}
