import {
  RUN_LEASE_HEADER,
  createClient,
  evalRoutes,
  secretRoutes,
  shareRoutes,
  sharingRoutes,
  type Client,
  type Share,
  type ShareTask,
} from "@osmosis/protocol";
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";
import { claimShare } from "./claim-share.ts";
import { sweepLeases } from "../worker-api/sweeper.ts";

const TRAINER = { url: "http://trainer.example", api_key: "tml-the-platform's" };

withDatabaseLocation("shares of a run", (locate) => {
  let server: TestServer;
  let workspace: TestWorkspace;
  let workers: Client;
  beforeAll(async () => {
    server = await startTestServer({ database: locate(), config: { trainer: TRAINER } });
    workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
    await workspace.upload("rows", `{"user_prompt":"2 x 2","label":"4"}\n`.repeat(4));
    const authorization = `Bearer ${server.platform.workerSecret}`;
    workers = createClient({ baseUrl: server.url, fetch, headers: () => ({ authorization }) });
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  /** A run that its holder lets `workers - 1` others help. */
  async function hold(required: readonly string[] = []) {
    await workspace.client.call(evalRoutes.submit, {
      body: {
        experiment_config: {
          rollout: "multiply",
          entrypoint: "main.ts",
          model_path: "osmosis/tiny-agent",
          dataset: "rows",
        },
        evaluation_config: { limit: 1 },
        advanced_config: { rollout_workers: 3 },
        secrets: { required: [...required] },
      },
    });
    const worker = createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret });
    const job = await worker.claim();
    if (job === null) throw new Error("no run came");
    const at = { params: { run_id: job.run_id }, headers: { [RUN_LEASE_HEADER]: job.lease_token } };
    return {
      job,
      run: worker.run(job),
      at,
      publish: async (...tasks: ShareTask[][]) => {
        const shares = tasks.map((one) => ({
          share_id: randomUUID(),
          phase: "eval" as const,
          step: 0,
          tasks: one,
        }));
        await workers.call(sharingRoutes.publish, { ...at, body: { shares } });
        return shares;
      },
      open: async () =>
        (
          await workers.call(sharingRoutes.collect, {
            ...at,
            body: { after: null, known_open: 0, wait_ms: 0 },
          })
        ).open,
    };
  }
  const task = (): ShareTask => ({ rollout_id: randomUUID(), row_index: 0, options: {} });
  async function claim(worker: string = randomUUID(), waitMs = 0): Promise<Share | null> {
    const body = { worker, instance: worker, wait_ms: waitMs, except_runs: [] };
    return (await workers.call(shareRoutes.claim, { body })).share;
  }
  const atShare = ({ share_id, lease_token }: Share) => ({
    params: { share_id },
    headers: { [RUN_LEASE_HEADER]: lease_token },
  });
  const record = (share: Share, ...ids: string[]) =>
    workers.call(shareRoutes.record, {
      ...atShare(share),
      body: { rollouts: ids.map((rollout_id) => testRollout({ rollout_id })) },
    });
  const logOf = async (runId: string) =>
    (
      await server.platform.db
        .selectFrom("log_lines")
        .select("message")
        .where("subject_id", "=", runId)
        .execute()
    ).map(({ message }) => message);

  test("every route of a share refuses a user's token, and the lease of another share", async () => {
    const holder = await hold();
    await holder.publish([task()], [task()]);
    const [one, two] = [await claim(), await claim()];
    if (one === null || two === null) throw new Error("no share came");
    const paths = ["heartbeat", "rollouts", "give-back", "logs"].map((name) => ["POST", name] as const);
    for (const [method, name] of [...paths, ["GET", "rows"], ["GET", "source.tar"]] as const) {
      const path = `/api/worker/shares/${one.share_id}/${name}`;
      const json = { rollouts: [], entries: [], reason: "" };
      const send = (token: string, lease: string) =>
        server.request(method, path, {
          token,
          headers: { [RUN_LEASE_HEADER]: lease },
          ...(method === "POST" ? { json } : {}),
        });
      expect((await send(server.ownerToken, one.lease_token)).status, name).toBe(401);
      expect((await send(server.platform.workerSecret, two.lease_token)).status, name).toBe(409);
      expect((await send(server.platform.workerSecret, holder.job.lease_token)).status, name).toBe(409);
    }
    await holder.run.finish();
  });

  test("a share says which trainer the platform has, which may hold the weights", async () => {
    const holder = await hold();
    await holder.publish([task()]);
    expect(await claim()).toMatchObject({ run_id: holder.job.run_id, weights: null, trainer: TRAINER });
    await holder.run.finish();
  });

  test("a run whose secret was deleted is left to its holder, and others are helped", async () => {
    await workspace.client.call(secretRoutes.set, {
      body: { name: "PASSWORD", value: "a password", scope: "workspace" },
    });
    const poor = await hold(["PASSWORD"]);
    await poor.publish([task()]);
    await workspace.client.call(secretRoutes.delete, {
      body: { name: "PASSWORD", scope: "workspace" },
    });
    const before = await logOf(poor.job.run_id);
    expect(await claim("anna")).toBeNull();
    const other = await hold();
    await other.publish([task()]);
    expect(await claim("anna")).toMatchObject({ run_id: other.job.run_id });
    expect(await claim("bob")).toBeNull();
    expect(await logOf(poor.job.run_id)).toEqual(before);
    expect(await poor.open()).toBe(1);
    await poor.run.finish();
    await other.run.finish();
  });

  test("publishing again what others have done meanwhile opens none of it again", async () => {
    const holder = await hold();
    const one = task();
    const shares = await holder.publish([one]);
    const share = await claim("anna");
    if (share === null) throw new Error("no share came");
    await record(share, one.rollout_id);
    await claim("anna");
    await workers.call(sharingRoutes.publish, { ...holder.at, body: { shares } });
    expect(await holder.open()).toBe(0);
    expect(await claim("bob")).toBeNull();
    await holder.run.finish();
  });

  test("whoever recorded the last rollout of a share can still tell its log when the next shares are there", async () => {
    const holder = await hold();
    const one = task();
    await holder.publish([one]);
    const share = await claim();
    if (share === null) throw new Error("no share came");
    await record(share, one.rollout_id);
    await holder.publish([task()]);
    const entry = { timestamp: new Date().toISOString(), level: "info" as const, step: "test" };
    await workers.call(shareRoutes.log, {
      ...atShare(share),
      body: { entries: [{ ...entry, message: "the last words" }] },
    });
    expect(await logOf(holder.job.run_id)).toContain("the last words");
    await holder.run.finish();
  });

  test("a share whose lease ended while no server was there goes on when one starts", async () => {
    const holder = await hold();
    await holder.publish([task()]);
    const share = await claim();
    if (share === null) throw new Error("no share came");
    const { platform } = server;
    await platform.db
      .updateTable("run_shares")
      .set({ lease_expires_at: new Date(platform.now().getTime() - 1) })
      .where("id", "=", share.share_id)
      .execute();
    await using _restarted = await sweepLeases({ ...platform, bell: platform.runBell });
    await workers.call(shareRoutes.heartbeat, { ...atShare(share), body: {} });
    await holder.run.finish();
  });

  test("a share is open again at once when its worker goes away while it is given it", async () => {
    const holder = await hold();
    await holder.publish([task()]);
    const { platform } = server;
    const worker = new AbortController();
    const exceptRuns = Object.assign([], {
      includes() {
        worker.abort();
        return false;
      },
    });
    const given = await claimShare(
      { ...platform, bell: platform.runBell },
      { worker: "anna", instance: "anna-1", exceptRuns },
      { waitMs: 0, signal: worker.signal, admit: async () => {} },
    );
    expect([given, worker.signal.aborted]).toEqual([null, true]);
    expect(await holder.open()).toBe(1);
    await holder.run.finish();
  });

  test("what is done or was taken back is forgotten with the next shares", async () => {
    const holder = await hold();
    const one = task();
    const [, back] = await holder.publish([one], [task()]);
    const share = await claim("anna");
    if (share === null || back === undefined) throw new Error("no share came");
    await record(share, one.rollout_id);
    const withdraw = { ...holder.at, body: { share_id: back.share_id } };
    const taken = await workers.call(sharingRoutes.withdraw, withdraw);
    expect(taken.rollout_ids).toHaveLength(1);
    expect(await workers.call(sharingRoutes.withdraw, withdraw)).toEqual(taken);
    expect(await claim("anna")).toBeNull();
    const [next] = await holder.publish([task()]);
    const left = await server.platform.db
      .selectFrom("run_shares")
      .select("id")
      .where("run_id", "=", holder.job.run_id)
      .execute();
    expect(left).toEqual([{ id: next?.share_id }]);
    await holder.run.finish();
  });
});
