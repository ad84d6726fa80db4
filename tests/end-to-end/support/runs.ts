import { createHash } from "node:crypto";
import {
  evalRoutes,
  modelRoutes,
  trainingRoutes,
  type Client,
  type EvalDetail,
  type LogEntry,
  type RolloutSummary,
  type TrainingDetail,
} from "@osmosis/protocol";
import type { z } from "zod";
import { until } from "./until.ts";

type Kind = "eval" | "train";

const FINAL = new Set(["finished", "failed", "stopped", "crashed"]);

/** Asks the platform, which may be away for a moment; undefined then. */
export async function whenThere<Answer>(ask: () => Promise<Answer>): Promise<Answer | undefined> {
  return ask().catch(() => undefined);
}

export async function evalEnd(client: Client, name: string): Promise<z.infer<typeof EvalDetail>> {
  return until(`the evaluation ${name} ends`, async () => {
    const detail = await whenThere(() => client.call(evalRoutes.get, { params: { name } }));
    return detail !== undefined && FINAL.has(detail.eval_run.status) && detail;
  });
}

export async function trainingEnd(
  client: Client,
  name: string,
  wait: { readonly timeoutMs?: number } = {},
): Promise<z.infer<typeof TrainingDetail>> {
  const ask = async () => {
    const detail = await whenThere(() => client.call(trainingRoutes.get, { params: { name } }));
    return detail !== undefined && FINAL.has(detail.training_run.status) && detail;
  };
  return until(`the training run ${name} ends`, ask, wait);
}

/** All rollouts that are recorded, or those of one step. */
export async function recordedRollouts(
  client: Client,
  kind: Kind,
  name: string,
  step?: number,
): Promise<RolloutSummary[]> {
  const { rollouts: route } = kind === "eval" ? evalRoutes : trainingRoutes;
  const found: RolloutSummary[] = [];
  for (let offset: number | null = 0; offset !== null;) {
    const query = { limit: 50, offset, ...(step === undefined ? {} : { step }) };
    const page: z.infer<typeof route.response> = await client.call(route, { params: { name }, query });
    found.push(...page.rollouts);
    offset = page.next_offset;
  }
  return found;
}

export async function logOf(client: Client, kind: Kind, name: string): Promise<LogEntry[]> {
  const { logs: route } = kind === "eval" ? evalRoutes : trainingRoutes;
  const lines: LogEntry[] = [];
  for (let cursor: string | undefined; ;) {
    const query = { limit: 200, direction: "newer" as const, ...(cursor === undefined ? {} : { cursor }) };
    const page = await client.call(route, { params: { name }, query });
    if (page.logs.length === 0) return lines;
    lines.push(...page.logs);
    cursor = page.next_cursor ?? undefined;
  }
}

export type Curve = Record<string, readonly (readonly [step: number, value: number])[]>;

/** Every metric of a training run by step, without those that a clock measured. */
export async function curvesOf(client: Client, name: string): Promise<Curve> {
  const { metrics } = await client.call(trainingRoutes.metrics, { params: { name } });
  return Object.fromEntries(
    metrics
      .filter(({ metric_key: key }) => !key.startsWith("perf/") && !key.includes("duration"))
      .map(({ metric_key: key, data_points: points }) => [
        key,
        points.map(({ step, value }) => [step, value]),
      ]),
  );
}

/** SHA-256 of each file of a run's last checkpoint. */
export async function checkpointHashes(client: Client, runName: string): Promise<Record<string, string>> {
  const { checkpoints } = await client.call(trainingRoutes.checkpoints, { params: { name: runName } });
  const last = checkpoints.toSorted((a, b) => a.checkpoint_step - b.checkpoint_step).at(-1);
  if (last === undefined) throw new Error(`the run ${runName} has no checkpoint`);
  const model = await client.call(modelRoutes.get, { params: { name: last.checkpoint_name } });
  const hashes: Record<string, string> = {};
  for (const { name, presigned_url: url } of model.files) {
    const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
    hashes[name] = createHash("sha256").update(bytes).digest("hex");
  }
  return hashes;
}
