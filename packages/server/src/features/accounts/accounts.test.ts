import { authRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { withDatabaseLocation } from "../../database/testing.ts";
import { startTestServer, type TestServer } from "../../testing.ts";

const DAY_MS = 86_400_000;

withDatabaseLocation("accounts", (locate) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const mint = (lifetimeDays: number) =>
    server.platform.accounts.tokens.mint({
      userId: server.platform.owner.id,
      kind: "personal",
      name: "test",
      lifetimeDays,
    });
  const localToken = async () => {
    const json = { secret: server.platform.localSecret, name: "this machine" };
    const { body } = await server.json("POST", "/api/local/token", { token: null, json });
    return authRoutes.localToken.response.parse(body);
  };

  /** Signs in by a link, as a browser would; its session cookie. */
  const signIn = async () => {
    const { sign_in_url: link } = await localToken();
    const response = await fetch(link, { redirect: "manual" });
    expect(response.status).toBe(302);
    expect(response.headers.get("location")).toBe(`${server.url}/`);
    return (response.headers.getSetCookie()[0] ?? "").split(";")[0] ?? "";
  };

  test("a request without, with a malformed and with an unknown token is told which", async () => {
    expect(await server.json("GET", "/api/cli/verify", { token: null })).toEqual(
      refusal("AUTH_HEADER_MISSING"),
    );
    expect(await server.json("GET", "/api/cli/verify", { token: "osm_unknown" })).toEqual(
      refusal("TOKEN_INVALID"),
    );
    expect(
      await server.json("GET", "/api/cli/verify", { token: null, headers: { authorization: "Bearer" } }),
    ).toEqual(refusal("TOKEN_MISSING"));
  });

  test("a token works until it expires", async () => {
    const { token } = await mint(1);
    expect(await server.json("GET", "/api/cli/verify", { token })).toMatchObject({ status: 200 });
    server.advance(DAY_MS + 1000);
    expect(await server.json("GET", "/api/cli/verify", { token })).toEqual(refusal("TOKEN_EXPIRED"));
    server.advance(-DAY_MS - 1000);
  });

  test("a revoked token is refused, revoking it again is fine, and nobody revokes what is not theirs", async () => {
    const { token, tokenId } = await mint(1);
    expect((await server.request("DELETE", `/api/cli/tokens/${tokenId}`)).status).toBe(200);
    expect((await server.request("DELETE", `/api/cli/tokens/${tokenId}`)).status).toBe(200);
    expect(await server.json("GET", "/api/cli/verify", { token })).toEqual(refusal("TOKEN_REVOKED"));
    const stranger = await server.platform.accounts.createUser({ email: "stranger@example.com", name: "S" });
    const foreign = await server.platform.accounts.tokens.mint({
      userId: stranger.id,
      kind: "personal",
      name: "x",
      lifetimeDays: 1,
    });
    expect((await server.request("DELETE", `/api/cli/tokens/${foreign.tokenId}`)).status).toBe(404);
  });

  test("only a hash of a token is stored", async () => {
    const { token } = await mint(1);
    const rows = await server.platform.db.selectFrom("tokens").selectAll().execute();
    expect(JSON.stringify(rows)).not.toContain(token);
  });

  test("a device gets one token, once a signed-in person has approved its code", async () => {
    const started = await server.json("POST", "/api/cli/device/authorize", {
      token: null,
      json: { deviceName: "laptop" },
    });
    const grant = authRoutes.authorizeDevice.response.parse(started.body);
    const poll = () =>
      server.json("POST", "/api/cli/device/token", { token: null, json: { device_code: grant.device_code } });
    expect(await poll()).toEqual({ status: 400, body: { error: "authorization_pending" } });
    expect(await poll()).toEqual({ status: 400, body: { error: "slow_down" } });

    const path = `/api/device/${grant.user_code.toLowerCase().replace("-", "")}`;
    expect(await server.json("GET", path)).toMatchObject({
      body: { user_code: grant.user_code, device_name: "laptop" },
    });
    expect(await server.json("POST", path, { json: { approve: true } })).toEqual({
      status: 200,
      body: { status: "approved" },
    });
    const answers = await Promise.all([poll(), poll()]);
    expect(answers.map(({ status }) => String(status)).toSorted()).toEqual(["200", "400"]);
    const { body } = answers.find(({ status }) => status === 200) ?? { body: undefined };
    const { token } = authRoutes.pollDevice.response.parse(body);
    expect(await server.json("GET", "/api/cli/verify", { token })).toMatchObject({
      body: { user: { id: server.platform.owner.id } },
    });
    expect(await server.json("POST", path, { json: { approve: true } })).toMatchObject({ status: 404 });
  });

  test("a denied and an expired device are told so", async () => {
    const start = async () => {
      const { body } = await server.json("POST", "/api/cli/device/authorize", {
        token: null,
        json: { deviceName: "d" },
      });
      return authRoutes.authorizeDevice.response.parse(body);
    };
    const poll = (code: string) =>
      server.json("POST", "/api/cli/device/token", { token: null, json: { device_code: code } });
    const denied = await start();
    await server.json("POST", `/api/device/${denied.user_code}`, { json: { approve: false } });
    expect(await poll(denied.device_code)).toEqual({ status: 400, body: { error: "access_denied" } });
    const late = await start();
    server.advance(16 * 60_000);
    expect(await poll(late.device_code)).toEqual({ status: 400, body: { error: "expired_token" } });
    server.advance(-16 * 60_000);
  });

  test("an address that begins too many sign-ins of devices is told when to try again", async () => {
    const begin = () =>
      server.request("POST", "/api/cli/device/authorize", { token: null, json: { deviceName: "d" } });
    server.advance(DAY_MS);
    const statuses = new Set<number>();
    for (let n = 0; n < 30; n++) statuses.add((await begin()).status);
    expect([...statuses]).toEqual([200]);
    const refused = await begin();
    expect(refused.status).toBe(429);
    const retryAfter = refused.headers.get("retry-after") ?? "";
    expect(retryAfter).toMatch(/^[1-9]\d?$/);
    expect(await refused.json()).toMatchObject({
      code: "RATE_LIMITED",
      hint: `Try again in ${retryAfter} seconds.`,
    });
    server.advance(61_000);
    expect((await begin()).status).toBe(200);
    server.advance(-DAY_MS - 61_000);
  });

  test("codes of devices that have expired are not kept", async () => {
    const { db } = server.platform;
    const kept = () => db.selectFrom("device_grants").select("id").where("device_name", "=", "old").execute();
    await server.platform.accounts.devices.authorize({ deviceName: "old", clientAddress: "a" });
    expect(await kept()).toHaveLength(1);
    server.advance(16 * 60_000);
    await server.platform.accounts.devices.authorize({ deviceName: "new", clientAddress: "b" });
    expect(await kept()).toEqual([]);
    server.advance(-16 * 60_000);
  });

  test("the local secret gives the owner's token; another one, or a page of a browser, gets nothing", async () => {
    const { token, user } = await localToken();
    expect(user.id).toBe(server.platform.owner.id);
    expect(await server.json("GET", "/api/session", { token })).toMatchObject({
      status: 200,
      body: { user },
    });
    const wrong = { token: null, json: { secret: "wrong", name: "x" } };
    expect(await server.json("POST", "/api/local/token", wrong)).toMatchObject({ status: 403 });
    const page = {
      token: null,
      json: { secret: server.platform.localSecret, name: "x" },
      headers: { origin: "http://evil.example" },
    };
    expect(await server.json("POST", "/api/local/token", page)).toMatchObject({ status: 403 });
  });

  test("a sign-in link signs one browser in, once", async () => {
    const { sign_in_url: link } = await localToken();
    const response = await fetch(link, { redirect: "manual" });
    const cookie = (response.headers.getSetCookie()[0] ?? "").split(";")[0] ?? "";
    expect(response.headers.getSetCookie()[0]).toContain("HttpOnly");
    expect(await server.json("GET", "/api/session", { token: null, headers: { cookie } })).toMatchObject({
      status: 200,
      body: { user: { email: "owner@osmosis.local" } },
    });
    const again = await fetch(link, { redirect: "manual" });
    expect(again.headers.get("location")).toBe(`${server.url}/sign-in?error=INVALID_TOKEN`);
    expect(again.headers.getSetCookie()).toEqual([]);
  });

  test("a change by cookie must come from the server's own pages", async () => {
    const cookie = await signIn();
    const create = (headers: Record<string, string>) =>
      server.json("POST", "/api/tokens", {
        token: null,
        headers: { cookie, ...headers },
        json: { name: "ci" },
      });
    expect(await create({ origin: "http://evil.example" })).toMatchObject({ status: 403 });
    expect(await create({ "sec-fetch-site": "cross-site" })).toMatchObject({ status: 403 });
    expect(await create({ origin: server.url })).toMatchObject({ status: 201 });
  });

  test("a personal token is listed by its beginning and expires when its owner said", async () => {
    const created = await server.json("POST", "/api/tokens", {
      json: { name: "pipeline", expires_in_days: 7 },
    });
    const { token, token_id: id } = z.object({ token: z.string(), token_id: z.string() }).parse(created.body);
    expect(await server.json("GET", "/api/cli/verify", { token })).toMatchObject({ status: 200 });
    const { body } = await server.json("GET", "/api/tokens");
    const { tokens } = z.object({ tokens: z.array(z.looseObject({ id: z.string() })) }).parse(body);
    expect(tokens.find((one) => one.id === id)).toMatchObject({
      kind: "personal",
      name: "pipeline",
      prefix: token.slice(0, 10),
    });
    expect(JSON.stringify(tokens)).not.toContain(token);
  });

  test("a person with a password signs in with it, and signs out", async () => {
    await server.platform.accounts.createUser({
      email: "Ada@Example.com",
      name: "Ada",
      password: "correct horse",
    });
    const signInWith = (password: string) =>
      server.request("POST", "/api/auth/sign-in/email", {
        token: null,
        headers: { origin: server.url },
        json: { email: "ada@example.com", password },
      });
    expect((await signInWith("wrong")).status).toBe(401);
    const response = await signInWith("correct horse");
    expect(response.status).toBe(200);
    const cookie = (response.headers.getSetCookie()[0] ?? "").split(";")[0] ?? "";
    const session = () => server.json("GET", "/api/session", { token: null, headers: { cookie } });
    expect(await session()).toMatchObject({ body: { user: { name: "Ada" }, workspaces: [] } });
    const signOut = { token: null, headers: { cookie, origin: server.url }, json: {} };
    expect((await server.request("POST", "/api/auth/sign-out", signOut)).status).toBe(200);
    expect(await session()).toMatchObject({ status: 401 });
  });

  test("guessing passwords is stopped after ten attempts", async () => {
    const statuses = [];
    for (let attempt = 0; attempt < 12; attempt += 1)
      statuses.push((await guessPassword(server, attempt)).status);
    expect(statuses.at(0)).toBe(401);
    expect(statuses.at(-1)).toBe(429);
    expect((await guessPassword(server, 12)).headers.get("retry-after")).toMatch(/^\d+$/);
    server.advance(61_000);
    expect((await guessPassword(server, 0)).status).toBe(401);
    server.advance(-61_000);
  });

  test("nobody registers by themselves, nor asks the library for a link", async () => {
    for (const path of [
      "/api/auth/sign-up/email",
      "/api/auth/sign-in/magic-link",
      "/api/auth/list-sessions",
    ]) {
      const json = { email: "owner@osmosis.local", name: "x", password: "long enough" };
      expect(
        (await server.request("POST", path, { token: null, headers: { origin: server.url }, json })).status,
      ).toBe(404);
    }
  });

  test("a worker needs the worker's secret", async () => {
    const claim = (token: string) =>
      server.json("POST", "/api/worker/claim", { token, json: { worker: "w", instance: "i", wait_ms: 0 } });
    expect(await claim(server.ownerToken)).toMatchObject({ status: 401, body: { code: "TOKEN_INVALID" } });
    expect(await claim(server.platform.workerSecret)).toMatchObject({ status: 200 });
  });
});

function refusal(code: string) {
  return { status: 401, body: { code, error: expect.any(String), hint: expect.any(String) } };
}

/** One attempt, from an address that the client made up. */
async function guessPassword(server: TestServer, attempt: number): Promise<Response> {
  return await server.request("POST", "/api/auth/sign-in/email", {
    token: null,
    headers: {
      origin: server.url,
      "x-forwarded-for": `10.0.0.${attempt}`,
      "x-osmosis-client-address": `10.1.0.${attempt}`,
    },
    json: { email: "nobody@example.com", password: `guess ${attempt}` },
  });
}
