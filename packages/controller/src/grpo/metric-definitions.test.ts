import { readFileSync, readdirSync } from "node:fs";
import { resolve } from "node:path";
import {
  METRICS,
  METRIC_GROUPS,
  TrainingRunConfig,
  metricDefinition,
  type DatasetRow,
} from "@osmosis/protocol";
import { expect, test } from "vitest";
import { banditScorer, openBandit } from "../../test/bandit.ts";
import { loadTestCodec } from "../../test/chat-codec.ts";
import { rolloutServer } from "../../test/rollout-server.ts";
import { openGateway } from "../gateway/gateway.ts";
import { systemClock } from "../io.ts";
import { connectRolloutServer } from "../rollout/server-client.ts";
import { trainRun } from "./train.ts";

const folder = import.meta.dirname;

test("docs/metrics.md says what the definitions say: vitest -u writes it anew", async () => {
  const tables = METRIC_GROUPS.map((group) => {
    const rows = METRICS.filter((metric) => metric.group === group).map(
      ({ key, unit, definition }) => `| \`${key}\` | ${unit} | ${definition} |\n`,
    );
    return `## ${group}\n\n| metric | unit | definition |\n|---|---|---|\n${rows.join("")}`;
  });
  const introduction = `# Metrics

What a training step commits, by the key that charts, \`--json\`, exports and trackers use. This page is written from \`packages/protocol/src/metric-definitions.ts\`; a test keeps them the same, and both true to what a step commits.

- **Rollouts** are the training rollouts of the step's own prompts, before dynamic sampling selects anything; **rewarded** are those whose grader gave a reward; **sampled** those with at least one token of the policy. A rollout **passes** with a reward of at least 1.
- The **batch** is what the update gets: the sampled tokens of groups whose rewards differ; of all groups with a reward, where single tokens teach (\`kl_coef\`, \`teacher_model\`, \`entropy_coef\`).
- A failed rollout has no reward, and is never a reward of 0. It is counted by its outcome, and left out of every mean of rewards.
- A mean of nothing has no value: the step has no point in that curve.

`;
  await expect(introduction + tables.join("\n")).toMatchFileSnapshot("../../../../docs/metrics.md");
});

test("a key is defined once", () => {
  expect(new Set(METRICS.map(({ key }) => key)).size).toBe(METRICS.length);
});

test("every key that the sources write is defined, and every definition is of a key that they write", () => {
  const written = readdirSync(folder)
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
    .flatMap((name) => [
      ...readFileSync(resolve(folder, name), "utf8").matchAll(
        /["`]((?:rollout|train|eval|perf)\/[^"`\s]+)["`]/g,
      ),
    ])
    .map((match) => match[1] ?? "")
    .filter((key) => !key.endsWith(".ts"));
  const patterns = [...new Set(written)].map((key) => ({
    key,
    pattern: new RegExp(`^${key.replaceAll(/\$\{[^}]*\}/g, ".+")}$`),
  }));
  const covers = (pattern: RegExp, key: string): boolean => pattern.test(key);
  const undefinedKeys = patterns.filter(
    ({ key, pattern }) =>
      metricDefinition(key) === undefined && !METRICS.some((metric) => covers(pattern, metric.key)),
  );
  expect(undefinedKeys.map(({ key }) => key)).toEqual([]);
  const unwritten = METRICS.filter(({ key }) => !patterns.some(({ pattern }) => covers(pattern, key)));
  expect(unwritten.map(({ key }) => key)).toEqual([]);
});

/** Settings under which steps commit what they commit only there. */
const CONFIGURATIONS: readonly object[] = [
  {},
  { group_policy: "retry" },
  { kl_coef: 0.1, teacher_model: "large" },
];

test("every key that real steps commit is defined, and every definition is of a key that some step commits", async () => {
  const committed = new Set<string>();
  for (const advanced of CONFIGURATIONS) for (const key of await keysOf(advanced)) committed.add(key);
  expect([...committed].filter((key) => metricDefinition(key) === undefined)).toEqual([]);
  const matched = new Set([...committed].map((key) => metricDefinition(key)?.key));
  expect(METRICS.map(({ key }) => key).filter((key) => !matched.has(key))).toEqual([]);
});

const rows: DatasetRow[] = Array.from({ length: 8 }, (_, row_index) => ({
  row_index,
  messages: [{ role: "user" as const, content: row_index % 2 === 0 ? "Even?" : "Odd?" }],
  label: row_index % 2 === 0 ? "7" : "3",
  metadata: { number: row_index },
}));

/** The keys of two steps of a run; the second attempt at each row fails, the third takes too long. */
async function keysOf(advanced: object): Promise<Set<string>> {
  const codec = await loadTestCodec();
  const model = openBandit(codec);
  await using server = await rolloutServer({
    agent: async ({ request, chat }) => {
      if (request.rollout_id?.endsWith("n1") === true) throw new Error("flaky");
      if (request.rollout_id?.endsWith("n2") === true) return { status: "failure", err_category: "timeout" };
      const answer = await chat({ messages: request.initial_messages });
      const messages = [...request.initial_messages, answer];
      const reward = answer.content === request.label ? 1 : 0;
      return { sample: { messages, reward, metrics: { correct: reward } } };
    },
  });
  await using gateway = await openGateway({
    policy: { type: "local", name: "bandit", sampler: model, codec },
    clock: systemClock,
  });
  const keys = new Set<string>();
  const end = await trainRun({
    runId: "run",
    config: TrainingRunConfig.parse({
      experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
      training: { lr: 0.25, rollout_batch_size: 4, n_samples_per_prompt: 8, total_epochs: 10 },
      checkpoints: { eval_interval: 1 },
      advanced: { seed: 3, holdout_rows: 2, max_steps: 2, ...advanced },
    }),
    model,
    reference: banditScorer(codec, () => Array.from({ length: 10 }, () => 0)),
    teacher: banditScorer(codec, () => Array.from({ length: 10 }, (_, digit) => digit)),
    gateway,
    server: connectRolloutServer({ baseUrl: server.url, fetch, clock: systemClock }),
    rows,
    recorded: [],
    committedSteps: 0,
    clock: systemClock,
    signal: new AbortController().signal,
    ports: {
      record: async () => {},
      commitStep: async ({ metrics }) => {
        for (const key of Object.keys(metrics)) keys.add(key);
      },
      checkpoint: async () => {},
      log: () => {},
    },
  });
  expect(end).toEqual({ status: "finished" });
  return keys;
}
