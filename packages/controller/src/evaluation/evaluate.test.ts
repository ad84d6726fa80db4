import { EvalRunConfig } from "@osmosis/protocol";
import type { DatasetRow, RolloutRecord } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { loadTestCodec } from "../../test/chat-codec.ts";
import { rolloutServer } from "../../test/rollout-server.ts";
import type { RolloutServerOptions } from "../../test/rollout-server.ts";
import { samplerOf } from "../../test/scripted-sampler.ts";
import { openGateway } from "../gateway/gateway.ts";
import { systemClock } from "../io.ts";
import { connectRolloutServer } from "../rollout/server-client.ts";
import { evaluateRun } from "./evaluate.ts";
import type { EvaluateRunOptions } from "./evaluate.ts";
import { evaluationResults } from "./results.ts";

const codec = await loadTestCodec();

const rows: DatasetRow[] = Array.from({ length: 6 }, (_, row_index) => ({
  row_index,
  messages: [{ role: "user" as const, content: `Say ${row_index}.` }],
  label: `${row_index}`,
  metadata: null,
}));

function configOf(evaluation: object): EvalRunConfig {
  return EvalRunConfig.parse({
    experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
    evaluation,
    secrets: { required: [] },
    advanced: { temperature: 0.5, seed: 3 },
  });
}

const grade: NonNullable<RolloutServerOptions["agent"]> = async ({ request, chat }) => {
  const answer = await chat({ messages: request.initial_messages });
  return { sample: { messages: [], reward: answer.content === request.label ? 1 : 0 } };
};

/** Evaluates a model that can say every digit but 4, and gives what was recorded. */
async function evaluate(
  changes: Partial<EvaluateRunOptions> & { rolloutServer?: RolloutServerOptions } = {},
) {
  const { rolloutServer: serverOptions, ...options } = changes;
  const sampler = samplerOf(codec, (_request, prompt) => ({
    answer: /Say (?!4)(\d)/.exec(prompt)?.[1] ?? "no",
  }));
  await using server = await rolloutServer(serverOptions ?? { agent: grade });
  await using gateway = await openGateway({
    policy: { type: "local", name: "tiny", sampler, codec },
    clock: systemClock,
  });
  const recorded: RolloutRecord[] = [];
  const logs: string[] = [];
  const result = await evaluateRun({
    runId: "eval",
    config: configOf({ n: 2, batch_size: 2 }),
    gateway,
    server: connectRolloutServer({ baseUrl: server.url, fetch, clock: systemClock }),
    rows,
    recorded: [],
    ports: {
      record: async (rollouts) => void recorded.push(...rollouts),
      log: ({ message }) => void logs.push(message),
    },
    clock: systemClock,
    signal: new AbortController().signal,
    ...options,
  }).catch((error: unknown) => error);
  return { result, recorded, server, sampler, logs };
}

test("an evaluation runs n rollouts of every row, some rows at a time", async () => {
  const { result, recorded, server, sampler, logs } = await evaluate();
  expect(result).toEqual({ status: "finished" });
  expect(recorded.map(({ row_index, sample_index }) => `${row_index}/${sample_index}`).sort()).toEqual(
    rows.flatMap(({ row_index }) => [`${row_index}/0`, `${row_index}/1`]),
  );
  expect(recorded.every(({ phase, step }) => phase === "eval" && step === 0)).toBe(true);
  expect(server.load.peak).toBeLessThanOrEqual(4);
  expect(sampler.requests.every(({ temperature }) => temperature === 0.5)).toBe(true);
  expect(new Set(sampler.requests.map(({ seed }) => seed)).size).toBe(12);
  expect(logs).toHaveLength(10);
  expect(logs.at(-1)).toBe("12 of 12 rollouts have ended.");
  const results = evaluationResults(recorded, {
    passThreshold: 1,
    sampledRows: 6,
    totalDatasetRows: 60,
    temperature: 0.5,
  });
  expect(results).toMatchObject({
    pass_rate: 10 / 12,
    graded: 12,
    reward_stats: { pass_at_k: { "2": 5 / 6 } },
  });
});

test("what was recorded by an earlier worker is not run again", async () => {
  const first = await evaluate();
  const kept = first.recorded.slice(0, 7);
  const { result, recorded, server } = await evaluate({ recorded: kept });
  expect(result).toEqual({ status: "finished" });
  expect(server.requests).toHaveLength(5);
  expect([...kept, ...recorded].map(({ rollout_id }) => rollout_id).sort()).toEqual(
    first.recorded.map(({ rollout_id }) => rollout_id).sort(),
  );
});

test("an evaluation in which nothing was scored has failed, and says why", async () => {
  const { result, recorded, logs } = await evaluate({
    rolloutServer: {
      agent: () => {
        throw new Error("no API key");
      },
    },
  });
  expect(recorded).toHaveLength(12);
  expect(logs.filter((message) => message.includes("ended as agent: Error: no API key"))).toHaveLength(5);
  expect(result).toEqual({ status: "failed", error: expect.stringContaining("agent: Error: no API key") });
});

test("stopping the run cancels what is under way", async () => {
  const stop = new AbortController();
  const { result, server, recorded } = await evaluate({
    signal: stop.signal,
    rolloutServer: {
      agent: ({ signal }) =>
        new Promise((_, reject) => {
          signal.addEventListener("abort", () => reject(new Error("aborted")));
          stop.abort(new Error("stopped by the user"));
        }),
    },
  });
  expect(String(result)).toContain("stopped by the user");
  expect(recorded).toEqual([]);
  expect(new Set(server.cancelled)).toEqual(new Set(server.requests.map(({ rollout_id }) => rollout_id)));
});

test("a store that refuses a record ends the run", async () => {
  const { result } = await evaluate({
    ports: { record: () => Promise.reject(new Error("lease lost")), log: () => undefined },
  });
  expect(String(result)).toContain("lease lost");
});
