import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { trainingRoutes, type Job } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { createTestWorker } from "../../testing-worker.ts";
import { createTestWorkspace, until } from "../../testing-workspace.ts";
import { startTestServer } from "../../testing.ts";
import { deleteUnusedRunBytes } from "../runs/sweep.ts";

/** Lives of the server in milliseconds; each ends with SIGKILL in the middle of uploads, commits and removals. */
const LIVES_MS = [150, 230, 310, 90, 400];

test(
  "a server that is killed at any moment names no file that is gone, and a sweep leaves no file that nothing names",
  { timeout: 180_000 },
  async () => {
    const dataFolder = await mkdtemp(join(tmpdir(), "osmosis-retention-"));
    try {
      const prepared = await prepare(dataFolder);
      let server = await startServer(dataFolder);
      let job: Job | null = null;
      let reached = 0;
      for (const lifeMs of LIVES_MS) {
        job ??= await createTestWorker({ url: server.url, ...prepared }).claim(20_000);
        if (job === null) throw new Error("no run came");
        const run = createTestWorker({ url: server.url, ...prepared }).run(job);
        await run.heartbeat();
        const writing = (async () => {
          for (;;) {
            const step = reached + 1;
            for (const kind of ["checkpoints", "state"]) {
              const stored = await run.put(`${kind}/${step}/weights`, `${kind} ${step}`);
              if (!stored.ok) throw new Error(await stored.text());
            }
            await run.checkpoint(step, { files: ["weights"], reward: Math.sin(step) });
            await run.commit(step, { state_files: ["weights"] });
            reached = step;
          }
        })().catch(() => {});
        // However busy the machine is, the moment is somewhere between two steps.
        const begun = reached;
        await until(() => reached > begun);
        await new Promise((resolve) => setTimeout(resolve, lifeMs));
        server.child.kill("SIGKILL");
        await once(server.child, "exit");
        await writing;
        server = await startServer(dataFolder);
        // A commit whose answer was lost is there all the same.
        reached = Math.max(reached, await committedIn(server.url, { prepared, job }));
      }
      server.child.kill("SIGKILL");
      await once(server.child, "exit");
      expect(reached).toBeGreaterThanOrEqual(LIVES_MS.length);

      await using last = await startTestServer({
        database: { kind: "folder", folder: dataFolder },
        config: { dataFolder },
      });
      const { db, blobs } = last.platform;
      // Everything that was left is older than what the sweep spares.
      last.advance(2 * 3600_000);
      await deleteUnusedRunBytes(last.platform);
      const files = await db.selectFrom("run_files").select("key").execute();
      const models = await db.selectFrom("trained_models").select(["files", "files_removed_at"]).execute();
      const named = new Set([
        ...files.map(({ key }) => key),
        ...models.flatMap((model) => model.files.map(({ key }) => key)),
      ]);
      const there = new Set<string>();
      for await (const { key } of blobs.list("runs")) there.add(key);
      expect([...named].filter((key) => !there.has(key))).toEqual([]);
      expect([...there].filter((key) => !named.has(key))).toEqual([]);
      // The newest and the best.
      expect(models.filter((model) => model.files_removed_at === null).length).toBeLessThanOrEqual(2);
      expect(models.length).toBeGreaterThan(2);
    } finally {
      await rm(dataFolder, { recursive: true, force: true, maxRetries: 5 });
    }
  },
);

type Prepared = { workerSecret: string; token: string; headers: Record<string, string>; name: string };

async function prepare(dataFolder: string): Promise<Prepared> {
  await using server = await startTestServer({
    database: { kind: "folder", folder: dataFolder },
    config: { dataFolder },
  });
  const workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
  await workspace.upload("rows", `{"user_prompt":"1","label":"1"}\n`.repeat(500));
  const { name } = await workspace.client.call(trainingRoutes.submit, {
    body: {
      experiment_config: {
        rollout: "multiply",
        entrypoint: "main.ts",
        model_path: "osmosis/tiny-agent",
        dataset: "rows",
      },
      training_config: { rollout_batch_size: 1, n_samples_per_prompt: 2 },
      advanced_config: { keep_checkpoints: 1 },
    },
  });
  return {
    workerSecret: server.platform.workerSecret,
    token: server.ownerToken,
    headers: workspace.headers,
    name,
  };
}

async function committedIn(
  url: string,
  { prepared, job }: { prepared: Prepared; job: Job },
): Promise<number> {
  const response = await fetch(new URL(`/api/cli/training-runs/${job.run_name}`, url), {
    headers: { authorization: `Bearer ${prepared.token}`, ...prepared.headers },
  });
  return trainingRoutes.get.response.parse(await response.json()).training_run.current_step;
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
    // Written by the server under test.
    const event = JSON.parse(line) as { url?: string; message?: string };
    if (event.url === undefined) throw new Error(`the server did not start: ${event.message}`);
    return { url: event.url, child };
  }
  throw new Error("the server ended before it listened");
}
