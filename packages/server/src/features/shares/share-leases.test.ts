import { randomUUID } from "node:crypto";
import {
  OsmosisError,
  createClient,
  trainingRoutes,
  workersRoutes,
  workspaceRoutes,
  type Job,
  type Share,
} from "@osmosis/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace, until, type TestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";

/** Who may do what with a run and its shares: the one who holds them, while they hold them. */

type Call = () => Promise<unknown>;
type Worker = ReturnType<typeof createTestWorker>;
type Holder = { readonly worker: Worker; readonly job: Job; readonly name: string };
type Helper = { readonly worker: Worker; readonly share: Share };

const GONE = { share_id: "00000000-0000-4000-8000-000000000000", lease_token: "guess" };

withDatabaseLocation("the lease of a share", (locate) => {
  let server: TestServer;
  let workspace: TestWorkspace;
  let anna: Worker;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
    workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
    await workspace.upload("rows", `{"user_prompt":"2 x 2","label":"4"}\n`.repeat(8));
    anna = worker();
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const worker = (secret = server.platform.workerSecret, name?: string) =>
    createTestWorker({ url: server.url, workerSecret: secret }, name);
  const expireLeases = () => server.advance(server.platform.config.leaseSeconds * 1000 + 1);

  async function hold(): Promise<Holder> {
    const { name } = await workspace.client.call(trainingRoutes.submit, {
      body: {
        experiment_config: {
          rollout: "multiply",
          entrypoint: "main.ts",
          model_path: "osmosis/tiny-agent",
          dataset: "rows",
        },
        training_config: { rollout_batch_size: 2, n_samples_per_prompt: 2 },
        advanced_config: { rollout_workers: 4 },
      },
    });
    const one = worker();
    const job = await one.claim();
    if (job?.run_name !== name) throw new Error("no run came");
    return { worker: one, job, name };
  }

  /** Offers a share of so many rollouts. */
  async function offer({ worker: one, job }: Holder, count = 2) {
    const ids = Array.from({ length: count }, () => randomUUID());
    const share = {
      share_id: randomUUID(),
      phase: "train" as const,
      step: 1,
      tasks: ids.map((rollout_id) => ({ rollout_id, row_index: 0, options: {} })),
    };
    await one.run(job).publish(share);
    return { share, ids };
  }

  async function help(one = worker()): Promise<Helper> {
    const share = await one.claimShare();
    if (share === null) throw new Error("no share came");
    return { worker: one, share };
  }

  const rollouts = (ids: readonly string[], reward = 1) =>
    ids.map((rollout_id) => testRollout({ rollout_id, phase: "train", step: 1, reward }));

  const recorded = async (runId: string) =>
    await server.platform.db
      .selectFrom("run_rollouts")
      .select(["rollout_id", "reward", "worker"])
      .where("run_id", "=", runId)
      .orderBy("number")
      .execute();

  const blobsOf = async (runId: string) => {
    const keys = [];
    for await (const { key } of server.platform.blobs.list(`runs/${runId}/rollouts`)) keys.push(key);
    return keys;
  };

  /** Every route of a share, in the name of a lease. */
  function callsOfShare(one: Worker, lease: { share_id: string; lease_token: string }): Record<string, Call> {
    const at = one.share(lease);
    return {
      heartbeat: at.heartbeat,
      rollouts: () => at.record(testRollout({ phase: "train", step: 1 })),
      logs: () => at.log("too late"),
      rows: () => refusedBy(at.rows()),
      source: () => refusedBy(at.source()),
      "give-back": () => at.giveBack(),
    };
  }

  /** Every route by which the holder of a run spreads its rollouts. */
  function callsOfHolder(one: Worker, job: Pick<Job, "run_id" | "lease_token">): Record<string, Call> {
    const run = one.run(job);
    return {
      weights: () => run.publishWeights(1, []),
      publish: () =>
        run.publish({
          share_id: randomUUID(),
          phase: "train",
          step: 1,
          tasks: [{ rollout_id: randomUUID(), row_index: 0, options: {} }],
        }),
      withdraw: () => run.withdraw(randomUUID()),
      collect: () => run.collect(null),
      "weights file": () => refusedBy(run.put("weights/1/adapter", "x")),
    };
  }

  async function expectRefused(calls: Record<string, Call>, expected: { code: string; message?: RegExp }) {
    for (const [what, call] of Object.entries(calls)) {
      const error: unknown = await call().then(
        () => undefined,
        (failure: unknown) => failure,
      );
      expect(error, what).toBeInstanceOf(OsmosisError);
      expect(error, what).toMatchObject({ code: expected.code });
      if (expected.message !== undefined && error instanceof OsmosisError) {
        expect(error.message, what).toMatch(expected.message);
      }
    }
  }

  describe("of a helper", () => {
    test("admits it to every route", async () => {
      const holder = await hold();
      const { ids } = await offer(holder);
      const { worker: one, share } = await help();
      const at = one.share(share);
      await at.heartbeat();
      await at.log("here");
      expect(await (await at.rows()).text()).toContain('"row_index":7');
      expect(Buffer.from(await (await at.source()).arrayBuffer()).includes("rollouts/multiply/main.ts")).toBe(
        true,
      );
      await at.record(...rollouts(ids));
      expect(await recorded(holder.job.run_id)).toMatchObject(
        ids.map((rollout_id) => ({ rollout_id, worker: one.name })),
      );
      await holder.worker.run(holder.job).finish();
    });

    test("is needed: that of another share, of the run, and of no share are refused everywhere", async () => {
      const holder = await hold();
      await offer(holder);
      await offer(holder);
      const [first, second] = [await help(), await help()];
      const { share_id } = first.share;
      for (const { lease_token } of [second.share, holder.job, GONE]) {
        await expectRefused(callsOfShare(first.worker, { share_id, lease_token }), {
          code: "CONFLICT",
          message: /The share was given to another worker|answered 409/,
        });
      }
      await expectRefused(callsOfShare(first.worker, GONE), {
        code: "CONFLICT",
        message: /The share is gone|answered 409/,
      });
      expect(await recorded(holder.job.run_id)).toEqual([]);
      expect(await blobsOf(holder.job.run_id)).toEqual([]);
      await holder.worker.run(holder.job).finish();
    });

    test("that has expired is refused everywhere, and another worker has the share", async () => {
      const holder = await hold();
      const { ids } = await offer(holder);
      const late = await help();
      // The holder is well.
      await server.platform.db
        .updateTable("runs")
        .set({ lease_expires_at: new Date(Date.now() + 365 * 24 * 3600_000) })
        .where("id", "=", holder.job.run_id)
        .execute();
      expireLeases();
      await expectRefused(callsOfShare(late.worker, late.share), {
        code: "CONFLICT",
        message: /The lease of the share has expired|answered 409/,
      });
      const next = await help();
      expect(next.share.share_id).toBe(late.share.share_id);
      await expectRefused(callsOfShare(late.worker, late.share), {
        code: "CONFLICT",
        message: /The share was given to another worker|answered 409/,
      });
      await next.worker.share(next.share).record(...rollouts(ids));
      expect(await recorded(holder.job.run_id)).toMatchObject(ids.map(() => ({ worker: next.worker.name })));
      await holder.worker.run(holder.job).finish();
    });

    test("ends with the run, with the lease of its holder, and when the holder takes the share back", async () => {
      const ended = await hold();
      const { ids } = await offer(ended);
      const first = await help();
      await ended.worker.run(ended.job).finish();
      await expectRefused(callsOfShare(first.worker, first.share), { code: "CONFLICT" });
      await expect(first.worker.share(first.share).record(...rollouts(ids))).rejects.toMatchObject({
        code: "CONFLICT",
      });
      expect(await recorded(ended.job.run_id)).toEqual([]);

      const lost = await hold();
      await offer(lost);
      const second = await help();
      expireLeases();
      const successor = await until(async () => (await anna.claim(0)) ?? undefined);
      expect(successor.run_id).toBe(lost.job.run_id);
      await expectRefused(callsOfShare(second.worker, second.share), { code: "CONFLICT" });
      await anna.run(successor).finish();

      const back = await hold();
      const { share, ids: left } = await offer(back);
      const third = await help();
      expect(await back.worker.run(back.job).withdraw(share.share_id)).toBeNull();
      await third.worker.share(third.share).giveBack();
      expect(await back.worker.run(back.job).withdraw(share.share_id)).toEqual(left);
      await expectRefused(callsOfShare(third.worker, third.share), {
        code: "CONFLICT",
        message: /The share was taken back|answered 409/,
      });
      await back.worker.run(back.job).finish();
    });

    test("records each rollout once, whoever says it again, and none that is not the share's", async () => {
      const holder = await hold();
      const { ids } = await offer(holder, 3);
      const { worker: one, share } = await help();
      const at = one.share(share);
      const [first = "", second = ""] = ids;
      await at.record(...rollouts([first]));
      await at.record(...rollouts([first], 0));
      await at.record(...rollouts([randomUUID()]));
      // A rollout server that still held an earlier execution gave it a suffix.
      await at.record(...rollouts([`${second}-a1`]));
      await at.record(...rollouts([second], 0));
      await at.record();
      expect(await recorded(holder.job.run_id)).toMatchObject([
        { rollout_id: first, reward: 1 },
        { rollout_id: `${second}-a1`, reward: 1 },
      ]);
      expect(await blobsOf(holder.job.run_id)).toHaveLength(2);
      const run = holder.worker.run(holder.job);
      const { after, rollouts: collected } = await run.collect(0);
      expect(collected.map(({ rollout_id }) => rollout_id)).toEqual([first, `${second}-a1`]);
      expect((await run.collect(after)).rollouts).toEqual([]);
      await run.finish();
    });
  });

  describe("of a holder", () => {
    test("is needed to spread a run: that of another run, of a helper, and an expired one are refused everywhere", async () => {
      const [holder, other] = [await hold(), await hold()];
      await offer(holder);
      const { worker: one, share } = await help();
      const run_id = holder.job.run_id;
      for (const lease_token of [other.job.lease_token, share.lease_token, "guess"]) {
        await expectRefused(callsOfHolder(one, { run_id, lease_token }), {
          code: "CONFLICT",
          message: /was given to another worker|answered 409/,
        });
      }
      const nowhere = callsOfHolder(one, { run_id: randomUUID(), lease_token: "guess" });
      const { "weights file": file, ...calls } = nowhere;
      await expectRefused(calls, { code: "NOT_FOUND", message: /There is no such run/ });
      await expect(file?.()).rejects.toThrow("answered 404");
      expireLeases();
      for (const { worker: late, job } of [holder, other]) {
        await expectRefused(callsOfHolder(late, job), { code: "CONFLICT" });
      }
      // Both are another's now.
      const ids = [];
      for (let count = 0; count < 2; count += 1) {
        const job = await anna.claim();
        if (job === null) throw new Error("no run came");
        ids.push(job.run_id);
        await anna.run(job).finish();
      }
      expect(ids.toSorted()).toEqual([holder.job.run_id, other.job.run_id].toSorted());
    });

    test("of a run that has ended is refused everywhere", async () => {
      const holder = await hold();
      await holder.worker.run(holder.job).finish();
      await expectRefused(callsOfHolder(holder.worker, holder.job), {
        code: "CONFLICT",
        message: /is finished|answered 409/,
      });
    });

    test("keeps the newest weights and those before them, also when the newest are told again", async () => {
      const { worker: one, job } = await hold();
      const run = one.run(job);
      const kept = async () => {
        const rows = await server.platform.db
          .selectFrom("run_files")
          .select("path")
          .where("run_id", "=", job.run_id)
          .orderBy("path")
          .execute();
        return rows.map(({ path }) => path);
      };
      for (const version of [1, 2, 3]) {
        await run.put(`weights/${version}/adapter`, `weights ${version}`);
        await run.publishWeights(version, ["adapter"]);
      }
      expect(await kept()).toEqual(["weights/2/adapter", "weights/3/adapter"]);
      await run.publishWeights(3, ["adapter"]);
      expect(await kept()).toEqual(["weights/2/adapter", "weights/3/adapter"]);
      await run.finish();
    });

    test("takes nothing back of another run's shares", async () => {
      const [holder, other] = [await hold(), await hold()];
      const { share } = await offer(holder);
      expect(await other.worker.run(other.job).withdraw(share.share_id)).toEqual([]);
      expect((await help()).share.share_id).toBe(share.share_id);
      for (const one of [holder, other]) await one.worker.run(one.job).finish();
    });
  });

  describe("a worker token", () => {
    const token = async (name: string) =>
      await workspace.client.call(workersRoutes.createToken, { body: { name } });

    test("admits to a run and to a share until it is revoked: then to no route, whatever lease is shown", async () => {
      const made = await token("lab");
      const one = worker(made.token);
      const holder = await hold();
      await offer(holder);
      const { share } = await help(one);
      await one.share(share).heartbeat();
      expect(await one.claim(0)).toBeNull();
      await workspace.client.call(workersRoutes.revokeToken, { params: { id: made.id } });
      await expectRefused(
        {
          ...callsOfShare(one, share),
          ...callsOfHolder(one, holder.job),
          claim: () => one.claim(0),
          "claim of a share": () => one.claimShare(0),
          "rollouts of the run": () => one.run(holder.job).record(testRollout()),
          commit: () => one.run(holder.job).commit(1),
          finish: () => one.run(holder.job).finish(),
        },
        { code: "AUTH_REQUIRED" },
      );
      // What it held is another's once its lease ends.
      await holder.worker.run(holder.job).heartbeat();
      await holder.worker.run(holder.job).finish();
    });

    test("is the owner's alone: no other user makes, sees or revokes one, and a second time none is revoked", async () => {
      const made = await token("mine");
      const { body } = await server.json("POST", `/api/workspaces/${workspace.name}/members`, {
        json: { email: "bob@example.com", role: "admin" },
      });
      const { member } = workspaceRoutes.setMember.response.parse(body);
      const { token: bearer } = await server.platform.accounts.tokens.mint({
        userId: member.id,
        kind: "personal",
        name: "test",
        lifetimeDays: 1,
      });
      const bob = createClient({
        baseUrl: server.url,
        fetch,
        headers: () => ({ authorization: `Bearer ${bearer}` }),
      });
      await expectRefused(
        {
          list: () => bob.call(workersRoutes.list, {}),
          tokens: () => bob.call(workersRoutes.tokens, {}),
          create: () => bob.call(workersRoutes.createToken, { body: { name: "bob" } }),
          revoke: () => bob.call(workersRoutes.revokeToken, { params: { id: made.id } }),
        },
        { code: "FORBIDDEN" },
      );
      expect(await worker(made.token).claim(0)).toBeNull();
      const revoke: Call = () =>
        workspace.client.call(workersRoutes.revokeToken, { params: { id: made.id } });
      await revoke();
      await expectRefused({ revoke }, { code: "NOT_FOUND" });
      const { tokens } = await workspace.client.call(workersRoutes.tokens, {});
      expect(tokens.map(({ id }) => id)).not.toContain(made.id);
    });
  });
});

/** Streams have no typed client: a refusal as the error that its body is. */
async function refusedBy(answer: Promise<Response>): Promise<Response> {
  const response = await answer;
  if (response.ok) return response;
  const { code, error } = (await response.json()) as { code: string; error: string };
  throw new OsmosisError(
    response.status === 401 ? "AUTH_REQUIRED" : (code as OsmosisError["code"]),
    `${error} (answered ${response.status})`,
  );
}
