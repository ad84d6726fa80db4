/// <reference lib="esnext.disposable" preserve="true" />
/** Tools for testing a workflow and a grader without a platform and without a model. */
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RawMessage } from "@osmosis/protocol";
import type { RolloutResult } from "./execution.ts";
import type { AnyBackend } from "./rollout-runner.ts";

export type { RolloutResult } from "./execution.ts";
export {
  scriptedModel,
  type ScriptedCall,
  type ScriptedModel,
  type ScriptedToolCall,
  UnconsumedModelCallsError,
  UnexpectedModelCallError,
} from "./scripted-model.ts";

export type RunRolloutOptions = {
  readonly backend: AnyBackend;
  /** Where the model is: a `scriptedModel`, or any OpenAI-compatible endpoint. */
  readonly model: { readonly url: string; readonly apiKey: string | null };
  /** A string is one user message. */
  readonly prompt: string | readonly RawMessage[];
  readonly label?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** False runs the workflow alone. */
  readonly grade?: boolean;
  readonly agentTimeoutMs?: number;
  readonly graderTimeoutMs?: number;
  readonly signal?: AbortSignal;
  /** Kept when given; otherwise artifacts go to a temporary folder that is removed again. */
  readonly artifactsDir?: string;
};

/**
 * Executes one rollout without server or platform. The result says what a platform would be told: test its `status` before
 * its reward.
 *
 * @example
 * const result = await runRollout({ backend, model, prompt: "What is 6 times 7?", label: "42" });
 * expect(result).toMatchObject({ status: "success", sample: { reward: 1 } });
 */
export async function runRollout(options: RunRolloutOptions): Promise<RolloutResult> {
  const { backend, model, prompt, signal = new AbortController().signal } = options;
  const temporary =
    options.artifactsDir === undefined ? await mkdtemp(join(tmpdir(), "osmosis-rollout-")) : undefined;
  try {
    return await backend.execute(
      {
        rolloutId: `test-${randomUUID()}`,
        prompt: typeof prompt === "string" ? [{ role: "user", content: prompt }] : prompt,
        label: options.label ?? null,
        metadata: options.metadata ?? null,
        chatCompletionsUrl: model.url,
        apiKey: model.apiKey,
        grade: options.grade ?? true,
        agentTimeoutMs: options.agentTimeoutMs ?? null,
        graderTimeoutMs: options.graderTimeoutMs ?? null,
        artifactsDir: options.artifactsDir ?? temporary ?? null,
      },
      { signal },
    );
  } finally {
    if (temporary !== undefined) await rm(temporary, { recursive: true, force: true });
  }
}
