import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestWorkspace, type TestWorkspace } from "../testing-workspace.ts";
import { startTestServer, type TestServer } from "../testing.ts";

let server: TestServer;
let workspace: TestWorkspace;
beforeAll(async () => {
  server = await startTestServer();
  workspace = await createTestWorkspace(server, { "rollouts/toy/main.ts": "" });
}, 60_000);
afterAll(() => server?.[Symbol.asyncDispose]());

const rollouts = (headers: Record<string, string>) => server.json("GET", "/api/cli/rollouts", { headers });

test("a workspace is named by its repository, or by its name outside of a clone, in either letter case", async () => {
  const byRepository = await rollouts(workspace.headers);
  expect(byRepository).toMatchObject({ status: 200, body: { total_count: 1 } });
  expect(await rollouts({ "x-osmosis-workspace": ` ${workspace.name.toUpperCase()} ` })).toEqual(
    byRepository,
  );
});

test("a request that names its workspace twice, not at all, or one that is not there says so by the official codes", async () => {
  expect(await rollouts({ ...workspace.headers, "x-osmosis-workspace": workspace.name })).toMatchObject({
    status: 400,
    body: { code: "WORKSPACE_SCOPE_HEADER_CONFLICT" },
  });
  expect(await rollouts({})).toMatchObject({ status: 400, body: { code: "GIT_SCOPE_HEADER_REQUIRED" } });
  expect(await rollouts({ "x-osmosis-workspace": "" })).toMatchObject({
    status: 400,
    body: { code: "GIT_SCOPE_HEADER_REQUIRED" },
  });
  expect(await rollouts({ "x-osmosis-workspace": "other" })).toMatchObject({
    status: 404,
    body: {
      code: "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED",
      error: "There is no workspace other, or you are not a member of it.",
    },
  });
});
