import { randomUUID } from "node:crypto";
import { evalRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker } from "../../testing-worker.ts";
import { createTestWorkspace, until } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";

withDatabaseLocation("a worker token that is revoked", (locate) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const mint = async () => {
    const { body } = await server.json("POST", "/api/worker-tokens", { json: { name: "lab" } });
    return z.object({ id: z.string(), token: z.string() }).parse(body);
  };
  const revoke = (id: string) => server.request("DELETE", `/api/worker-tokens/${id}`);
  /** The answer to a request that waits while its token is revoked; the token's row shows that it was let in. */
  const revokeWhileWaiting = async (path: string, more: object) => {
    const { id, token } = await mint();
    const instance = randomUUID();
    const json = { worker: "w", instance, wait_ms: 20_000, ...more };
    const waiting = server.json("POST", path, { token, json });
    await until(() =>
      server.platform.db
        .selectFrom("worker_tokens")
        .select("id")
        .where("id", "=", id)
        .where("last_used_at", "is not", null)
        .executeTakeFirst(),
    );
    expect((await revoke(id)).status).toBe(200);
    return await waiting;
  };

  test("gets no run that comes while it waits, and the run is left to others", async () => {
    const workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
    await workspace.upload("rows", '{"user_prompt":"1","label":"1"}\n'.repeat(4));
    expect(await revokeWhileWaiting("/api/worker/claim", {})).toMatchObject({
      status: 401,
      body: { code: "TOKEN_INVALID" },
    });
    const { id } = await workspace.client.call(evalRoutes.submit, {
      body: {
        experiment_config: {
          rollout: "multiply",
          entrypoint: "main.ts",
          model_path: "osmosis/tiny-agent",
          dataset: "rows",
        },
      },
    });
    const other = createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret });
    expect(await other.claim()).toMatchObject({ run_id: id, attempt: 1 });
  });

  test("gets no share that comes while it waits", async () => {
    expect(await revokeWhileWaiting("/api/worker/shares/claim", { except_runs: [] })).toMatchObject({
      status: 401,
      body: { code: "TOKEN_INVALID" },
    });
  });
});
