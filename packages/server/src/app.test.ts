import { once } from "node:events";
import { connect } from "node:net";
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

  test("what never becomes a request is refused in the envelope, too", async () => {
    const long = "a".repeat(20_000);
    expect(await server.json("GET", `/api/cli/training-runs/${long}`)).toMatchObject({
      status: 431,
      body: {
        code: "VALIDATION",
        error: expect.stringContaining("longer than 16 KiB"),
        hint: expect.any(String),
      },
    });
    const socket = connect(Number(new URL(server.url).port), "127.0.0.1").setEncoding("utf8");
    let said = "";
    socket.on("data", (text) => (said += text));
    socket.write("Good morning!\r\n\r\n");
    await once(socket, "close");
    expect(said).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(JSON.parse(said.slice(said.indexOf("\r\n\r\n")))).toMatchObject({ code: "VALIDATION" });
  });

  test("what the official command line offers and this platform does not is said, with what does it here", async () => {
    const asked: [method: string, path: string, error: RegExp][] = [
      ["GET", "/api/cli/benchmarks?limit=50&offset=0", /no benchmarks.*eval submit/],
      ["GET", "/api/cli/benchmark-runs/some", /no benchmarks/],
      ["POST", "/api/cli/models/run-step-3/deploy", /deploys none.*model download/],
      ["POST", "/api/cli/eval-runs/some/retry", /Submit the evaluation again/],
      ["POST", "/api/cli/eval-runs/imports", /run elsewhere/],
      ["GET", "/api/cli/quickstart?organizationId=1", /GitHub/],
    ];
    for (const [method, path, error] of asked) {
      expect(await server.json(method, path), path).toMatchObject({
        status: 404,
        body: { error: expect.stringMatching(error), code: "NOT_FOUND", hint: expect.any(String) },
      });
    }
  });

  test("what no database can hold is refused with its place, not with a failure", async () => {
    for (const path of ["/api/cli/models/a%00b", "/api/cli/rollouts?branch=%00", "/%00/x.git/info/refs"]) {
      expect(await server.json("GET", path)).toMatchObject({ status: 400, body: { code: "VALIDATION" } });
    }
    for (const name of ["a\0b", "\ud800"]) {
      expect(await server.json("POST", "/api/tokens", { json: { name } })).toMatchObject({
        status: 400,
        body: { code: "VALIDATION", field: "name", error: expect.stringContaining("name holds") },
      });
    }
    const claim = { worker: "w", instance: "i\0", wait_ms: 0 };
    const token = server.platform.workerSecret;
    expect(await server.json("POST", "/api/worker/claim", { json: claim, token })).toMatchObject({
      status: 400,
    });
  });

  test("a body that is too long, no UTF-8, or ends early is refused before it is read to its end", async () => {
    const post = (body: Uint8Array<ArrayBuffer>, path = "/api/cli/device/authorize") =>
      fetch(`${server.url}${path}`, {
        method: "POST",
        body,
        headers: { "content-type": "application/json" },
      });
    expect((await post(new Uint8Array(9 * 1024 ** 2))).status).toBe(413);
    expect((await post(new Uint8Array(100_000), "/api/auth/sign-in/email")).status).toBe(413);
    const latin1 = await post(Buffer.from('{"deviceName":"caf\u00e9"}', "latin1"));
    expect(await latin1.json()).toMatchObject({
      code: "VALIDATION",
      error: "The request body is not UTF-8.",
    });
  });

  test("a body of arrays inside arrays is refused before something overflows on it", async () => {
    const deep = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
    const post = async (path: string, token: string, body: string) => {
      const headers = { authorization: `Bearer ${token}`, "x-api-key": `tml-${token}` };
      const response = await fetch(`${server.url}${path}`, { method: "POST", body, headers });
      return { status: response.status, body: await response.json() };
    };
    const worker = server.platform.workerSecret;
    const line = `{"timestamp":"${new Date().toISOString()}","level":"info","step":"","message":"","details":{"a":${deep}}}`;
    for (const [path, token, body] of [
      ["/api/tokens", server.ownerToken, `{"name":"x","more":${deep}}`],
      ["/api/worker/runs/x/logs", worker, `{"entries":[${line}]}`],
      ["/api/v1/create_session", server.ownerToken, `{"user_metadata":{"a":${deep}}}`],
    ] as const) {
      expect(await post(path, token, body), path).toMatchObject({
        status: 400,
        body: { code: "VALIDATION", error: expect.stringContaining("nested deeper") },
      });
    }
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
