import { workspaceRoutes } from "@osmosis/protocol";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { withDatabaseLocation } from "../../database/testing.ts";
import { startTestServer, type TestServer } from "../../testing.ts";

withDatabaseLocation("members", (locate) => {
  let server: TestServer;
  let folder: string;
  beforeAll(async () => {
    // An empty template, and no sources to pack.
    folder = await mkdtemp(join(tmpdir(), "osmosis-members-"));
    server = await startTestServer({
      database: locate(),
      config: { templateFolder: folder, sourceFolder: folder },
    });
    await server.json("POST", "/api/cli/workspaces", { json: { name: "team" } });
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  const add = async (json: object, token = server.ownerToken) =>
    await server.json("POST", "/api/workspaces/team/members", { json, token });
  const tokenOf = async (userId: string) => {
    const wanted = { userId, kind: "personal" as const, name: "t", lifetimeDays: 1 };
    return (await server.platform.accounts.tokens.mint(wanted)).token;
  };

  test("a person is added by address, signs in by a link, and works in the workspace until removed", async () => {
    const { body } = await add({ email: "Ada@example.com", name: "Ada" });
    const { member, sign_in_url: link } = workspaceRoutes.setMember.response.parse(body);
    expect(member).toMatchObject({ email: "ada@example.com", role: "member" });
    const signIn = await fetch(link ?? "", { redirect: "manual" });
    expect(signIn.headers.getSetCookie()).not.toEqual([]);
    expect(await add({ email: "ada@example.com" })).toMatchObject({ body: { sign_in_url: null } });

    const token = await tokenOf(member.id);
    const headers = { "x-osmosis-git": "team/workspace" };
    const rollouts = () => server.json("GET", "/api/cli/rollouts", { token, headers });
    expect(await rollouts()).toMatchObject({ status: 200 });
    expect(await server.json("GET", "/api/cli/workspaces", { token })).toMatchObject({
      body: { workspaces: [{ name: "team", role: "member" }] },
    });
    expect(await add({ email: "eve@example.com" }, token)).toMatchObject({ status: 403 });
    expect((await server.request("DELETE", `/api/workspaces/team/members/${member.id}`)).status).toBe(200);
    expect(await rollouts()).toMatchObject({ status: 403, body: { code: "GIT_REPOSITORY_ACCESS_DENIED" } });
    expect(await server.json("GET", "/api/workspaces/team/members", { token })).toMatchObject({
      status: 404,
    });
  });

  test("an admin adds members, but no owners", async () => {
    const { body } = await add({ email: "admin@example.com", role: "admin" });
    const { member } = workspaceRoutes.setMember.response.parse(body);
    const token = await tokenOf(member.id);
    expect(await add({ email: "new@example.com" }, token)).toMatchObject({ status: 200 });
    expect(await add({ email: "boss@example.com", role: "owner" }, token)).toMatchObject({ status: 403 });
    const { owner } = server.platform;
    expect(await add({ email: owner.email, role: "member" }, token)).toMatchObject({
      status: 403,
      body: { code: "FORBIDDEN" },
    });
    expect(await server.json("GET", "/api/workspaces/team/members", { token })).toMatchObject({
      body: {
        members: [
          { role: "owner" },
          { email: "admin@example.com", role: "admin" },
          { email: "new@example.com" },
        ],
      },
    });
  });

  test("the last owner stays", async () => {
    const { owner } = server.platform;
    expect((await server.request("DELETE", `/api/workspaces/team/members/${owner.id}`)).status).toBe(409);
    expect(await add({ email: owner.email, role: "member" })).toMatchObject({ status: 409 });
  });
});
