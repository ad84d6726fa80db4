import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { createClient, trainingRoutes, type Job } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace, until } from "../../testing-workspace.ts";
import { startTestServer } from "../../testing.ts";

const STEPS = 400;
const EXAMPLES = 2;

test(
  "a server that is killed at any moment has kept everything that it acknowledged, once",
  { timeout: 180_000 },
  async () => {
    const dataFolder = await mkdtemp(join(tmpdir(), "osmosis-killed-"));
    try {
      const prepared = await prepare(dataFolder);
      let server = await startServer(dataFolder);
      try {
        const claimed = await createTestWorker({ url: server.url, ...prepared }).claim(20_000);
        if (claimed === null) throw new Error("no run came");
        const acknowledged = { step: 0, rollouts: new Set<string>() };
        for (const lifeMs of [200, 350, 90]) {
          const writing = writeUntilKilled(server.url, { prepared, job: claimed, acknowledged });
          // However busy the machine is, something is there to be lost.
          await until(() => acknowledged.step > 0);
          await new Promise((resolve) => setTimeout(resolve, lifeMs));
          server.child.kill("SIGKILL");
          await once(server.child, "exit");
          await writing;

          server = await startServer(dataFolder);
          // The lease outlives the server, so its worker just goes on.
          const run = createTestWorker({ url: server.url, ...prepared }).run(claimed);
          await run.heartbeat();
          const { training_run } = await clientOf(server.url, prepared).call(trainingRoutes.get, {
            params: { name: claimed.run_name },
          });
          expect(training_run.current_step).toBeGreaterThanOrEqual(acknowledged.step);
          // At most the one commit that was not acknowledged is there, too.
          expect(training_run.current_step).toBeLessThanOrEqual(acknowledged.step + 1);
          expect(training_run.examples_processed_count).toBe(training_run.current_step * EXAMPLES);
          const kept = new Set((await run.rollouts()).map((one) => one["rollout_id"]));
          const unused = [...acknowledged.rollouts].filter((id) => stepOf(id) > training_run.current_step);
          expect(unused.filter((id) => !kept.has(id))).toEqual([]);
          const { total_count } = await clientOf(server.url, prepared).call(trainingRoutes.rollouts, {
            params: { name: claimed.run_name },
            query: { limit: 1 },
          });
          expect(total_count).toBeGreaterThanOrEqual(acknowledged.rollouts.size);
          acknowledged.step = training_run.current_step;
        }
        expect(acknowledged.step).toBeGreaterThan(0);
        await createTestWorker({ url: server.url, ...prepared })
          .run(claimed)
          .finish();
      } finally {
        server.child.kill("SIGKILL");
      }
    } finally {
      await rm(dataFolder, { recursive: true, force: true, maxRetries: 5 });
    }
  },
);

type Prepared = { workerSecret: string; token: string; headers: Record<string, string> };

/** A data folder with a workspace, a data set and a training run that waits. */
async function prepare(dataFolder: string): Promise<Prepared> {
  await using server = await startTestServer({
    database: { kind: "folder", folder: dataFolder },
    config: { dataFolder },
  });
  const workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
  const rows = Array.from({ length: STEPS }, (_, n) => `{"user_prompt":"${n}","label":"${n}"}\n`).join("");
  await workspace.upload("rows", rows);
  await workspace.client.call(trainingRoutes.submit, {
    body: {
      experiment_config: {
        rollout: "multiply",
        entrypoint: "main.ts",
        model_path: "osmosis/tiny-agent",
        dataset: "rows",
      },
      training_config: { rollout_batch_size: 1, n_samples_per_prompt: EXAMPLES },
    },
  });
  return { workerSecret: server.platform.workerSecret, token: server.ownerToken, headers: workspace.headers };
}

async function startServer(dataFolder: string): Promise<{ url: string; child: ChildProcess }> {
  const main = join(import.meta.dirname, "../../main.ts");
  const child = spawn(
    process.execPath,
    [main, "--data", dataFolder, "--port", "0", "--json", "--supervised"],
    {
      stdio: ["pipe", "pipe", "ignore"],
      env: { PATH: process.env["PATH"], HOME: process.env["HOME"] },
    },
  );
  for await (const line of createInterface({ input: child.stdout })) {
    const event = JSON.parse(line) as { event: string; url?: string; message?: string };
    if (event.url === undefined) throw new Error(`the server did not start: ${event.message}`);
    return { url: event.url, child };
  }
  throw new Error("the server ended before it listened");
}

/** Records and commits as fast as it can, and notes what was acknowledged. */
async function writeUntilKilled(
  url: string,
  {
    prepared,
    job,
    acknowledged,
  }: { prepared: Prepared; job: Job; acknowledged: { step: number; rollouts: Set<string> } },
): Promise<void> {
  const run = createTestWorker({ url, ...prepared }).run(job);
  try {
    for (let step = acknowledged.step + 1; step <= STEPS; step += 1) {
      const ids = Array.from({ length: EXAMPLES }, (_, index) => `${step}-${index}`);
      await run.record(
        ...ids.map((rollout_id, sample_index) =>
          testRollout({ rollout_id, sample_index, phase: "train", step }),
        ),
      );
      for (const id of ids) acknowledged.rollouts.add(id);
      await run.put(`state/${step}/weights`, `weights ${step}`);
      await run.commit(step, {
        examples: EXAMPLES,
        metrics: { "rollout/raw_reward": 1 },
        state_files: ["weights"],
      });
      acknowledged.step = step;
    }
  } catch {
    // The server was killed in the middle of a call.
  }
}

function stepOf(rolloutId: string): number {
  return Number(rolloutId.split("-")[0]);
}

function clientOf(url: string, { token, headers }: Prepared) {
  return createClient({
    baseUrl: url,
    fetch,
    headers: () => ({ authorization: `Bearer ${token}`, ...headers }),
  });
}
