import { secretRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { withDatabaseLocation } from "../../database/testing.ts";
import { startTestServer, type TestServer } from "../../testing.ts";
import { createTestWorkspace, type TestWorkspace } from "../../testing-workspace.ts";
import { createSeal } from "./seal.ts";

withDatabaseLocation("secrets", (locate) => {
  let server: TestServer;
  let workspace: TestWorkspace;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
    workspace = await createTestWorkspace(server);
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const set = (name: string, value: string, scope: "workspace" | "user") =>
    workspace.client.call(secretRoutes.set, { body: { name, value, scope } });
  const owner = () => ({ workspaceId: workspace.id, userId: server.platform.owner.id });

  test("a secret is stored encrypted and never shown", async () => {
    const secret = await set("API_KEY", "hunter2-hunter2", "workspace");
    expect(secret).toMatchObject({
      name: "API_KEY",
      scope: "workspace",
      creator_name: "Owner",
      updater_name: "Owner",
    });
    expect(JSON.stringify(secret)).not.toContain("hunter2");
    const rows = await server.platform.db
      .selectFrom("secrets")
      .selectAll()
      .where("id", "=", secret.id)
      .execute();
    expect(JSON.stringify(rows)).not.toContain("hunter2");
    const list = await server.request("GET", "/api/cli/environment-secrets", { headers: workspace.headers });
    expect(await list.text()).not.toContain("hunter2");
    expect(await server.platform.secrets.valuesOf(owner(), ["API_KEY"])).toEqual(
      new Map([["API_KEY", "hunter2-hunter2"]]),
    );
  });

  test("setting again replaces the value and keeps the row", async () => {
    const first = await set("REPLACED", "one", "workspace");
    const second = await set("REPLACED", "two", "workspace");
    expect(second.id).toBe(first.id);
    expect((await server.platform.secrets.valuesOf(owner(), ["REPLACED"])).get("REPLACED")).toBe("two");
  });

  test("a personal secret goes before the workspace's of the same name", async () => {
    await set("BOTH", "of the workspace", "workspace");
    await set("BOTH", "personal", "user");
    await set("MINE", "personal", "user");
    expect(await server.platform.secrets.sourcesOf(owner(), ["BOTH", "MINE", "API_KEY", "ABSENT"])).toEqual(
      new Map([
        ["API_KEY", "workspace"],
        ["BOTH", "user_override"],
        ["MINE", "user"],
      ]),
    );
    expect((await server.platform.secrets.valuesOf(owner(), ["BOTH"])).get("BOTH")).toBe("personal");
    const { environment_secrets } = await workspace.client.call(secretRoutes.list, {
      query: { scope: "user" },
    });
    expect(environment_secrets.map(({ name, scope }) => [name, scope])).toEqual([
      ["BOTH", "user"],
      ["MINE", "user"],
    ]);
  });

  test("a personal secret of somebody else is neither seen nor used", async () => {
    const other = await server.platform.accounts.createUser({ email: "other@example.com", name: "Other" });
    await server.platform.workspaces.addMember(workspace.id, other.id, "member");
    await set("PERSONAL_OF_OWNER", "x", "user");
    const theirs = { workspaceId: workspace.id, userId: other.id };
    expect(await server.platform.secrets.sourcesOf(theirs, ["PERSONAL_OF_OWNER"])).toEqual(new Map());
    const { items } = await server.platform.secrets.list(theirs, { scope: "all", limit: 50, offset: 0 });
    expect(items.map((item) => item.name)).not.toContain("PERSONAL_OF_OWNER");
  });

  test("deleting needs the right scope, and says so when there is nothing", async () => {
    await set("GONE", "x", "workspace");
    const answer = await server.json("DELETE", "/api/cli/environment-secrets", {
      json: { name: "GONE", scope: "user" },
      headers: workspace.headers,
    });
    expect(answer).toMatchObject({
      status: 404,
      body: { error: "There is no personal secret GONE.", code: "NOT_FOUND" },
    });
    await workspace.client.call(secretRoutes.delete, { body: { name: "GONE", scope: "workspace" } });
    expect(await server.platform.secrets.sourcesOf(owner(), ["GONE"])).toEqual(new Map());
  });

  test("a bad name or an empty value is refused without repeating the value", async () => {
    const answer = await server.request("POST", "/api/cli/environment-secrets", {
      json: { name: "lower", value: "top-secret", scope: "workspace" },
      headers: workspace.headers,
    });
    const text = await answer.text();
    expect(answer.status).toBe(400);
    expect(text).toContain("must be upper-case letters, digits and underscores");
    expect(text).not.toContain("top-secret");
  });
});

test("a sealed value opens with its own key in its own place only", () => {
  const seal = createSeal(Buffer.alloc(32, 1));
  const sealed = seal.close("value", "here");
  expect(seal.open(sealed, "here")).toBe("value");
  expect(seal.close("value", "here")).not.toBe(sealed);
  expect(() => seal.open(sealed, "there")).toThrow("A stored secret cannot be decrypted.");
  expect(() => createSeal(Buffer.alloc(32, 2)).open(sealed, "here")).toThrow("cannot be decrypted");
  expect(() => seal.open(`${sealed.slice(0, -4)}AAAA`, "here")).toThrow("cannot be decrypted");
});
