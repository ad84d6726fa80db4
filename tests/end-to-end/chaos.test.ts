/**
 * Training in an environment that goes wrong all the time: a rollout server of the SDK, in a process of its own, in which
 * rollouts crash, hang, and are graded with garbage. What it did to whom is in its journal; the metrics must say the same.
 */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectRolloutServer, openGateway, systemClock, trainRun } from "@osmosis/controller";
import { TrainingRunConfig, type DatasetRow, type RolloutRecord } from "@osmosis/protocol";
import { test } from "vitest";
import { openBandit } from "../../packages/controller/test/bandit.ts";
import { loadTestCodec } from "../../packages/controller/test/chat-codec.ts";
import { startRollout } from "./support/rollout-server.ts";

const STEPS = 9;
const GROUPS = 4;
const GROUP_SIZE = 16;

const rows: DatasetRow[] = Array.from({ length: 48 }, (_, row_index) => ({
  row_index,
  messages: [{ role: "user" as const, content: row_index % 2 === 0 ? "Even?" : "Odd?" }],
  label: row_index % 2 === 0 ? "7" : "3",
  metadata: null,
}));

// At the same time: hung rollouts make a run wait more than work.
test.concurrent.for([
  { group_policy: "min_viable", asynchronous: false },
  { group_policy: "retry", group_retries: 1, asynchronous: true, max_staleness: 2 },
])(
  "where a tenth of the rollouts crash, a twentieth hang and a twentieth are graded with garbage it trains: $group_policy",
  async (advanced, { expect, onTestFinished }) => {
    const folder = await mkdtemp(join(tmpdir(), "chaos-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const journal = join(folder, "journal");
    await writeFile(journal, "");
    await using rollouts = await startRollout(join(import.meta.dirname, "support/chaos-rollouts.ts"), {
      CHAOS_JOURNAL: journal,
      _OSMOSIS_ROLLOUT_ARTIFACT_ROOT: folder,
    });
    const codec = await loadTestCodec();
    const model = openBandit(codec);
    await using gateway = await openGateway({
      policy: { type: "local", name: "bandit", sampler: model, codec },
      clock: systemClock,
    });
    const steps: Readonly<Record<string, number>>[] = [];
    const records: RolloutRecord[] = [];
    const end = await trainRun({
      runId: "chaos",
      config: TrainingRunConfig.parse({
        experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
        training: {
          lr: 0.4,
          rollout_batch_size: GROUPS,
          n_samples_per_prompt: GROUP_SIZE,
          total_epochs: 10,
          agent_workflow_timeout_s: 5,
          grader_timeout_s: 5,
        },
        checkpoints: { eval_interval: 0 },
        advanced: { seed: 1, max_steps: STEPS, reward_range: [0, 1], dynamic_sampling: false, ...advanced },
      }),
      model,
      gateway,
      server: connectRolloutServer({
        baseUrl: rollouts.url,
        apiKey: rollouts.token,
        fetch,
        clock: systemClock,
      }),
      rows,
      recorded: [],
      committedSteps: 0,
      ports: {
        record: async (some) => void records.push(...some),
        commitStep: async ({ metrics }) => void steps.push(metrics),
        checkpoint: async () => {},
        log: () => {},
      },
      clock: systemClock,
      signal: new AbortController().signal,
    });
    expect(end).toEqual({ status: "finished" });

    const injected = (await readFile(journal, "utf8")).trim().split("\n").toSorted(compare);
    const suffered = records
      .filter(({ outcome }) => outcome !== "ok")
      .map(({ rollout_id: id, outcome }) => `${outcome} ${id}`)
      .toSorted(compare);
    expect(suffered).toEqual(injected);

    const injectedAs = (outcome: string, ids = /./): number =>
      injected.filter((line) => line.startsWith(`${outcome} `) && ids.test(line)).length;
    const total = (key: string): number => steps.reduce((sum, metrics) => sum + (metrics[key] ?? 0), 0);
    for (const outcome of ["agent", "timeout", "grader"]) {
      expect([outcome, total(`rollout/ended/${outcome}`)]).toEqual([outcome, injectedAs(outcome)]);
      expect(injectedAs(outcome)).toBeGreaterThan(10);
    }
    // Only what may go better the next time is run again, once.
    const retried = advanced.group_policy === "retry" ? injectedAs("timeout", /n\d+$/) : 0;
    expect(total("rollout/retries")).toBe(retried);
    expect(total("rollout/retries/timeout")).toBe(retried);
    expect(total("rollout/ended")).toBe(STEPS * GROUPS * GROUP_SIZE + retried);
    expect(total("rollout/outcome/timeout")).toBe(injectedAs("timeout") - retried);

    const rewards = steps.map((metrics) => metrics["rollout/raw_reward"] ?? Number.NaN);
    expect(rewards[0]).toBeLessThan(0.35);
    expect(rewards.at(-1)).toBeGreaterThan(0.7);
    // The grader's own number goes the same way: nothing of the garbage is in the reward.
    expect(steps.map((metrics) => metrics["rollout/component/right/mean"])).toEqual(rewards);
    expect(steps.map((metrics) => metrics["train/updated"])).toEqual(steps.map(() => 1));
    if (process.env["OSMOSIS_TEST_EVIDENCE"] === "1") {
      const counts = Object.fromEntries(
        ["agent", "timeout", "grader"].map((outcome) => [outcome, injectedAs(outcome)]),
      );
      process.stdout.write(
        `chaos: ${JSON.stringify({ ...advanced, rollouts: records.length, injected: counts, retried, rewards })}\n`,
      );
    }
  },
);

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
