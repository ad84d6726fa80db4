import { afterAll, beforeAll, expect, test } from "vitest";
import { withDatabaseLocation } from "./database/testing.ts";
import { startTestServer, type TestServer } from "./testing.ts";

withDatabaseLocation("the app", (locate) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  test("answers that it is healthy without credentials", async () => {
    expect(await server.json("GET", "/api/health", { token: null })).toEqual({
      status: 200,
      body: { status: "ok" },
    });
  });

  test("an unknown route is a 404 in the error envelope", async () => {
    expect(await server.json("GET", "/api/nothing")).toEqual({
      status: 404,
      body: { error: "There is no route GET /api/nothing.", code: "NOT_FOUND" },
    });
  });

  test("the owner's token is verified", async () => {
    expect(await server.json("GET", "/api/cli/verify")).toEqual({
      status: 200,
      body: {
        user: { id: server.platform.owner.id, email: "owner@osmosis.local", name: "Owner" },
        expires_at: expect.any(String),
        token_id: expect.any(String),
        workspace: null,
      },
    });
  });
});
