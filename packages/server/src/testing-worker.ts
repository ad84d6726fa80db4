import { randomUUID } from "node:crypto";
import {
  RUN_LEASE_HEADER,
  createClient,
  fillPath,
  shareRoutes,
  shareStreams,
  sharingRoutes,
  workerRoutes,
  workerStreams,
  type Job,
  type RolloutRecord,
  type Share,
} from "@osmosis/protocol";
import type { z } from "zod";

/** A worker that does what a test says, over HTTP. */
export function createTestWorker(
  server: { url: string; workerSecret: string },
  worker = `worker-${randomUUID()}`,
) {
  const authorization = `Bearer ${server.workerSecret}`;
  const client = createClient({ baseUrl: server.url, fetch, headers: () => ({ authorization }) });
  const instance = randomUUID();
  return {
    name: worker,
    async claim(waitMs = 5000, lane: "runs" | "replays" = "runs"): Promise<Job | null> {
      const body = { worker, instance, wait_ms: waitMs, lane };
      return (await client.call(workerRoutes.claim, { body })).job;
    },
    async claimShare(waitMs = 5000, exceptRuns: readonly string[] = []): Promise<Share | null> {
      const body = { worker, instance, wait_ms: waitMs, except_runs: [...exceptRuns] };
      return (await client.call(shareRoutes.claim, { body })).share;
    },
    share({ share_id, lease_token }: Pick<Share, "share_id" | "lease_token">) {
      const at = { params: { share_id }, headers: { [RUN_LEASE_HEADER]: lease_token } };
      const stream = (path: string) =>
        fetch(new URL(fillPath(path, { share_id }), server.url), {
          headers: { authorization, [RUN_LEASE_HEADER]: lease_token },
        });
      return {
        heartbeat: () => client.call(shareRoutes.heartbeat, { ...at, body: {} }),
        record: (...rollouts: RolloutRecord[]) =>
          client.call(shareRoutes.record, { ...at, body: { rollouts } }),
        giveBack: (reason = "no room") => client.call(shareRoutes.giveBack, { ...at, body: { reason } }),
        log: (...messages: string[]) =>
          client.call(shareRoutes.log, { ...at, body: { entries: messages.map(logEntry) } }),
        rows: () => stream(shareStreams.rows),
        source: () => stream(shareStreams.source),
      };
    },
    run(job: Pick<Job, "run_id" | "lease_token">) {
      const at = { params: { run_id: job.run_id }, headers: { [RUN_LEASE_HEADER]: job.lease_token } };
      const stream = async (path: string, init: RequestInit = {}) =>
        await fetch(new URL(fillPath(path, { run_id: job.run_id }), server.url), {
          ...init,
          headers: { authorization, [RUN_LEASE_HEADER]: job.lease_token },
        });
      const lines = async (path: string) => {
        const text = await (await stream(path)).text();
        return text
          .split("\n")
          .filter((line) => line !== "")
          .map((line) => JSON.parse(line) as Record<string, unknown>);
      };
      return {
        heartbeat: () => client.call(workerRoutes.heartbeat, { ...at, body: {} }),
        record: (...rollouts: RolloutRecord[]) =>
          client.call(workerRoutes.record, { ...at, body: { rollouts } }),
        commit: (
          step: number,
          more: Partial<z.input<NonNullable<typeof workerRoutes.commitStep.body>>> = {},
        ) =>
          client.call(workerRoutes.commitStep, {
            ...at,
            body: { step, metrics: {}, examples: 0, state_files: [], ...more },
          }),
        checkpoint: (
          step: number,
          more: Partial<z.input<NonNullable<typeof workerRoutes.checkpoint.body>>> = {},
        ) =>
          client.call(workerRoutes.checkpoint, {
            ...at,
            body: { step, reward: null, method: "lora", files: [], ...more },
          }),
        log: (...messages: string[]) =>
          client.call(workerRoutes.log, { ...at, body: { entries: messages.map(logEntry) } }),
        publishWeights: (version: number, files: readonly string[], method: "lora" | "full" = "lora") =>
          client.call(sharingRoutes.weights, { ...at, body: { version, method, files: [...files] } }),
        publish: (...shares: z.input<NonNullable<typeof sharingRoutes.publish.body>>["shares"]) =>
          client.call(sharingRoutes.publish, { ...at, body: { shares } }),
        withdraw: async (share_id: string) =>
          (await client.call(sharingRoutes.withdraw, { ...at, body: { share_id } })).rollout_ids,
        collect: (after: number | null, waitMs = 0, knownOpen = 0) =>
          client.call(sharingRoutes.collect, {
            ...at,
            body: { after, known_open: knownOpen, wait_ms: waitMs },
          }),
        finish: (status: "finished" | "failed" | "stopped" = "finished", error: string | null = null) =>
          client.call(workerRoutes.finish, { ...at, body: { status, error } }),
        put: async (path: string, body: string) =>
          await fetch(new URL(fillPath(workerStreams.file, { run_id: job.run_id, path }), server.url), {
            method: "PUT",
            body,
            headers: { authorization, [RUN_LEASE_HEADER]: job.lease_token },
          }),
        rows: () => lines(workerStreams.rows),
        rollouts: () => lines(workerStreams.rollouts),
        stepRollouts: (step: number) => lines(workerStreams.stepRollouts.replace("{step}", String(step))),
        source: async () => Buffer.from(await (await stream(workerStreams.source)).arrayBuffer()),
        get: (url: string) => fetch(new URL(url, server.url)),
      };
    },
  };
}

function logEntry(message: string) {
  return { timestamp: new Date().toISOString(), level: "info" as const, step: "test", message };
}

/** A rollout that went well. */
export function testRollout(more: Partial<RolloutRecord> = {}): RolloutRecord {
  return {
    rollout_id: randomUUID(),
    phase: "eval",
    step: 0,
    row_index: 0,
    sample_index: 0,
    outcome: "ok",
    reward: 1,
    error: null,
    label: "4",
    messages: [
      { role: "user", content: "What is 2 x 2?" },
      { role: "assistant", content: "4" },
    ],
    metrics: { turns: 1 },
    sequences: [{ tokens: [1, 2, 3], mask: [0, 1, 1], logprobs: [0, -0.5, -0.25] }],
    weights_version_min: 0,
    weights_version_max: 0,
    prompt_tokens: 10,
    completion_tokens: 5,
    model_calls: 1,
    prefix_breaks: 0,
    duration_ms: 12.5,
    trajectory: null,
    ...more,
  };
}
