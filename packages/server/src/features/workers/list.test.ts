import { randomUUID } from "node:crypto";
import { authRoutes, createClient, evalRoutes, trainingRoutes, workersRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker } from "../../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";

withDatabaseLocation("the list of workers", (locate) => {
  let server: TestServer;
  let workspace: TestWorkspace;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
    workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
    await workspace.upload("rows", '{"user_prompt":"1","label":"1"}\n'.repeat(4));
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const experiment_config = {
    rollout: "multiply",
    entrypoint: "main.ts",
    model_path: "osmosis/tiny-agent",
    dataset: "rows",
  };
  const worker = (name: string) =>
    createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret }, name);
  const clientOf = (token: string) =>
    createClient({
      baseUrl: server.url,
      fetch,
      headers: () => ({ authorization: `Bearer ${token}` }),
    });
  const list = async () => (await clientOf(server.ownerToken).call(workersRoutes.list, {})).workers;

  test("tells who works on what, of which workspace, who waits for work, and who was not heard of for a minute", async () => {
    expect(await list()).toEqual([]);
    const [ada, bob, cy] = [worker("ada"), worker("bob"), worker("cy")];
    // As a worker does before it looks for a share.
    for (const one of [bob, cy]) expect(await one.claim(0)).toBeNull();
    const { name } = await workspace.client.call(trainingRoutes.submit, {
      body: {
        experiment_config,
        training_config: { rollout_batch_size: 2, n_samples_per_prompt: 2 },
        advanced_config: { rollout_workers: 2 },
      },
    });
    const job = await ada.claim();
    if (job === null) throw new Error("no run came");
    const tasks = [1, 2].map((row_index) => ({ rollout_id: randomUUID(), row_index, options: {} }));
    await ada.run(job).publish({ share_id: randomUUID(), phase: "train", step: 1, tasks });
    expect(await bob.claimShare()).not.toBeNull();

    const held = { workspace: workspace.name, run_name: name, kind: "training" };
    expect(await list()).toMatchObject([
      { name: "ada", state: "working", holds: [{ type: "run", ...held, committed_steps: 0 }] },
      { name: "bob", state: "working", holds: [{ type: "share", ...held, step: 1, rollouts_left: 2 }] },
      { name: "cy", state: "idle", holds: [] },
    ]);

    await ada.run(job).finish();
    server.advance(61_000);
    expect(await ada.claim(0)).toBeNull();
    expect((await list()).map(({ name: one, state }) => [one, state])).toEqual([
      ["ada", "idle"],
      ["bob", "silent"],
      ["cy", "silent"],
    ]);
    const long = new Date(Date.now() - 25 * 3600_000);
    await server.platform.db.updateTable("workers").set({ last_seen_at: long }).execute();
    expect(await list()).toEqual([]);
  });

  test("tells a worker that claims under its lane of replays by its own name", async () => {
    const { name } = await workspace.client.call(evalRoutes.submit, { body: { experiment_config } });
    const [dora, lane] = [worker("dora"), worker("dora-replays")];
    expect(await dora.claim()).toMatchObject({ run_name: name });
    expect(await lane.claim(0, "replays")).toBeNull();
    expect((await list()).filter(({ name: one }) => one.startsWith("dora"))).toMatchObject([
      { name: "dora", state: "working", holds: [{ type: "run", kind: "evaluation", run_name: name }] },
    ]);
  });

  test("is for the owner of the platform, whom the session names as such", async () => {
    const { accounts, owner } = server.platform;
    expect(await clientOf(server.ownerToken).call(authRoutes.session, {})).toMatchObject({
      user: { id: owner.id },
      owns_platform: true,
    });
    const { body } = await server.json("POST", `/api/workspaces/${workspace.name}/members`, {
      json: { email: "eve@example.com" },
    });
    const { member } = body as { member: { id: string } };
    const { token } = await accounts.tokens.mint({
      userId: member.id,
      kind: "personal",
      name: "t",
      lifetimeDays: 1,
    });
    expect(await clientOf(token).call(authRoutes.session, {})).toMatchObject({ owns_platform: false });
    await expect(clientOf(token).call(workersRoutes.list, {})).rejects.toMatchObject({
      code: "FORBIDDEN",
      hint: expect.stringContaining(owner.email),
    });
  });

  test("no workspace takes the address of its page", async () => {
    expect(await server.json("POST", "/api/cli/workspaces", { json: { name: "workers" } })).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("reserved") },
    });
  });
});
