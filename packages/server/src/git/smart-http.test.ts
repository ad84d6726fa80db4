import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { withDatabaseLocation } from "../database/testing.ts";
import { startTestServer, type TestServer } from "../testing.ts";

const execute = promisify(execFile);

withDatabaseLocation("Git hosting", (locate) => {
  let server: TestServer;
  let folder: string;
  let templateFolder: string;

  /** Git as a user's own command. */
  async function git(cwd: string, ...args: string[]): Promise<string> {
    const identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
    const { stdout } = await execute("git", [...identity, ...args], {
      cwd,
      env: { PATH: process.env["PATH"], HOME: folder, GIT_TERMINAL_PROMPT: "0", GIT_CONFIG_NOSYSTEM: "1" },
    });
    return stdout.trim();
  }

  function cloneUrl(repository: string, token = server.ownerToken): string {
    const url = new URL(`${server.url}/${repository}.git`);
    url.username = "anything";
    url.password = token;
    return url.toString();
  }

  async function newClone(name: string): Promise<string> {
    await server.json("POST", "/api/cli/workspaces", { json: { name } });
    await git(folder, "clone", "--quiet", cloneUrl(`${name}/workspace`), name);
    return join(folder, name);
  }

  /** What Git says when it cannot clone. */
  async function refusedClone(url: string): Promise<string> {
    return await git(folder, "clone", "--quiet", url, "refused").catch((error: Error) => error.message);
  }

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "osmosis-git-"));
    templateFolder = join(folder, "template");
    await mkdir(join(templateFolder, "rollouts/multiply"), { recursive: true });
    await writeFile(join(templateFolder, "README.md"), "A workspace.\n");
    await writeFile(join(templateFolder, "rollouts/multiply/main.ts"), "// serves\n");
    await writeFile(join(templateFolder, "rollouts/multiply/package.json"), '{"description":"Multiplies."}');
    // No sources and no package.json: nothing is packed and nothing locked.
    server = await startTestServer({ database: locate(), config: { templateFolder, sourceFolder: folder } });
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test("a workspace is created with a repository that holds the template and is synced", async () => {
    const created = await server.json("POST", "/api/cli/workspaces", { json: { name: "first" } });
    expect(created).toEqual({
      status: 200,
      body: {
        id: expect.any(String),
        name: "first",
        role: "owner",
        connected_repo: { id: expect.any(String), repo_full_name: "first/workspace" },
        clone_url: `${server.url}/first/workspace.git`,
        platform_url: `${server.url}/first`,
      },
    });
    await git(folder, "clone", "--quiet", cloneUrl("first/workspace"), "first");
    expect((await readdir(join(folder, "first"))).toSorted()).toEqual([".git", "README.md", "rollouts"]);
    expect(await git(join(folder, "first"), "log", "--format=%an: %s")).toBe(
      "Osmosis: Start from the workspace template",
    );
    const headers = { "x-osmosis-git": "first/workspace" };
    expect(await server.json("GET", "/api/cli/rollouts", { headers })).toMatchObject({
      status: 200,
      body: { rollouts: [{ name: "multiply", description: "Multiplies.", is_active: true, branch: "main" }] },
    });
  });

  test("a pushed branch is synced when the push returns, and a removed rollout becomes inactive", async () => {
    const clone = await newClone("pushed");
    const headers = { "x-osmosis-git": "pushed/workspace" };
    await git(clone, "checkout", "--quiet", "-b", "feature/search");
    await mkdir(join(clone, "rollouts/search"), { recursive: true });
    await writeFile(join(clone, "rollouts/search/main.py"), "pass\n");
    await git(clone, "add", ".");
    await git(clone, "commit", "--quiet", "-m", "Search the web");
    await git(clone, "push", "--quiet", "origin", "HEAD");
    const list = () =>
      server.json("GET", `/api/cli/rollouts?branch=${encodeURIComponent("feature/search")}`, { headers });
    expect(await list()).toMatchObject({
      body: { total_count: 2, rollouts: [{ name: "multiply" }, { name: "search", is_active: true }] },
    });
    await git(clone, "rm", "--quiet", "-r", "rollouts/multiply");
    await git(clone, "commit", "--quiet", "-m", "Only search");
    await git(clone, "push", "--quiet", "origin", "HEAD");
    expect(await list()).toMatchObject({
      body: {
        rollouts: [
          { name: "search", is_active: true },
          { name: "multiply", is_active: false },
        ],
      },
    });
    expect(await server.json("GET", "/api/cli/sync-events?limit=2", { headers })).toMatchObject({
      body: {
        total_count: 3,
        has_more: true,
        next_offset: 2,
        sync_events: [
          {
            message: "Only search",
            author: "Ada",
            status: "success",
            rollouts_found: 1,
            branch: "feature/search",
          },
          { message: "Search the web", author: "Ada", status: "success", rollouts_found: 2 },
        ],
      },
    });
    await git(clone, "push", "--quiet", "origin", "--delete", "feature/search");
    expect(await list()).toMatchObject({ body: { rollouts: [{ is_active: false }, { is_active: false }] } });
  });

  test("a push that nobody synced is found by the next sync of everything", async () => {
    const clone = await newClone("missed");
    const { id } = await server.platform.workspaces.accessByName(server.platform.owner.id, "missed");
    await mkdir(join(clone, "rollouts/late"));
    await writeFile(join(clone, "rollouts/late/main.ts"), "");
    await git(clone, "add", ".");
    await git(clone, "commit", "--quiet", "-m", "Late");
    await git(clone, "push", "--quiet", server.platform.repositories.pathOf(id), "HEAD:main");
    await server.platform.workspaces.syncAll();
    expect(
      await server.json("GET", "/api/cli/rollouts", { headers: { "x-osmosis-git": "missed/workspace" } }),
    ).toMatchObject({ body: { rollouts: [{ name: "late" }, { name: "multiply" }] } });
  });

  test("a workspace whose repository is gone is marked and said so; all others go on", async () => {
    await newClone("gone");
    const { platform } = server;
    const { id } = await platform.workspaces.accessByName(platform.owner.id, "gone");
    await rm(platform.repositories.pathOf(id), { recursive: true });
    for (const _twice of [1, 2]) {
      expect((await platform.workspaces.syncAll()).map(({ repository }) => repository)).toEqual([
        "gone/workspace",
      ]);
    }
    const headers = { "x-osmosis-git": "gone/workspace" };
    const { body } = await server.json("GET", "/api/cli/sync-events", { headers });
    expect(body).toMatchObject({
      total_count: 2,
      sync_events: [{ status: "failed" }, { status: "success" }],
    });
    expect(JSON.stringify(body)).toContain("Restore it from a backup");
    await expect(refusedClone(cloneUrl("gone/workspace"))).resolves.toContain("507");
    await expect(platform.repositories.resolveRef(id, {})).rejects.toMatchObject({ code: "STORAGE" });
    await git(folder, "init", "--quiet", "--bare", platform.repositories.pathOf(id));
    expect(await platform.workspaces.syncAll()).toEqual([]);
  });

  test("a branch is a name, no expression, however long", async () => {
    await newClone("named");
    const { id } = await server.platform.workspaces.accessByName(server.platform.owner.id, "named");
    for (const branch of [
      "main~0",
      "main@{0}",
      "main^{/x}",
      "ma*",
      "../heads/main",
      "a\0b",
      "x".repeat(200_000),
    ]) {
      await expect(server.platform.repositories.resolveRef(id, { branch })).rejects.toMatchObject({
        code: "NOT_FOUND",
        details: { field: "branch" },
      });
    }
  });

  test("a manifest with a NUL character does not keep its branch from being synced", async () => {
    const clone = await newClone("nul");
    await writeFile(join(clone, "rollouts/multiply/package.json"), '{"description":"a\\u0000b"}');
    await git(clone, "commit", "--quiet", "-am", "Odd");
    await git(clone, "push", "--quiet", "origin", "HEAD:main");
    expect(
      await server.json("GET", "/api/cli/rollouts", { headers: { "x-osmosis-git": "nul/workspace" } }),
    ).toMatchObject({ body: { rollouts: [{ name: "multiply", description: "a\ufffdb" }] } });
  });

  test("a thousand branches of one commit are synced with a few look-ups", async () => {
    const clone = await newClone("many");
    const refs = Array.from({ length: 1000 }, (_, n) => `refs/heads/b/${n}`);
    const head = await git(clone, "rev-parse", "HEAD");
    const { id } = await server.platform.workspaces.accessByName(server.platform.owner.id, "many");
    const repository = server.platform.repositories.pathOf(id);
    await writeFile(
      join(repository, "packed-refs"),
      `# pack-refs with: peeled fully-peeled sorted \n${refs
        .toSorted()
        .map((ref) => `${head} ${ref}\n`)
        .join("")}`,
    );
    const start = performance.now();
    await server.platform.workspaces.sync(id);
    // With three processes of Git for each branch it takes half a minute and more.
    expect(performance.now() - start).toBeLessThan(20_000);
    const headers = { "x-osmosis-git": "many/workspace" };
    expect(await server.json("GET", "/api/cli/rollouts", { headers })).toMatchObject({
      body: { total_count: 1001 },
    });
  });

  test("a push of more than Git buffers arrives, and is fetched again", async () => {
    const clone = await newClone("large");
    const noise = Buffer.alloc(3_000_000);
    crypto.getRandomValues(noise.subarray(0, 65_536));
    for (let offset = 65_536; offset < noise.length; offset += 1)
      noise[offset] = (noise[offset - 65_536]! * 31 + offset) % 251;
    await writeFile(join(clone, "noise.bin"), noise);
    await git(clone, "add", ".");
    await git(clone, "commit", "--quiet", "-m", "Noise");
    await git(clone, "push", "--quiet", "origin", "main");
    await git(folder, "clone", "--quiet", cloneUrl("large/workspace"), "large-again");
    expect((await readFile(join(folder, "large-again/noise.bin"))).equals(noise)).toBe(true);
  });

  test("a branch, a short commit and nothing name the same commit; what was not pushed is named with the remedy", async () => {
    const clone = await newClone("refs");
    const head = await git(clone, "rev-parse", "HEAD");
    const { id } = await server.platform.workspaces.accessByName(server.platform.owner.id, "refs");
    const { repositories } = server.platform;
    expect(await repositories.resolveRef(id, {})).toBe(head);
    expect(await repositories.resolveRef(id, { branch: "main" })).toBe(head);
    expect(await repositories.resolveRef(id, { commit_sha: head.slice(0, 8) })).toBe(head);
    await expect(repositories.resolveRef(id, { branch: "other" })).rejects.toMatchObject({
      code: "NOT_FOUND",
      hint: "Push it with `git push origin other`.",
    });
    await expect(repositories.resolveRef(id, { commit_sha: "0".repeat(40) })).rejects.toMatchObject({
      code: "NOT_FOUND",
    });
    await expect(repositories.resolveRef(id, { commit_sha: "--all" })).rejects.toMatchObject({
      code: "VALIDATION",
    });
    await expect(repositories.resolveRef(id, { branch: "main", commit_sha: head })).rejects.toMatchObject({
      code: "VALIDATION",
    });
  });

  test("a commit is handed out as an archive of its files, whole or one folder", async () => {
    await newClone("archived");
    const { id } = await server.platform.workspaces.accessByName(server.platform.owner.id, "archived");
    const { repositories } = server.platform;
    const sha = await repositories.resolveRef(id, {});
    const names = async (path?: string) => {
      const archive = join(folder, "archive.tar");
      await writeFile(archive, await repositories.archive(id, sha, path));
      return (await execute("tar", ["-tf", archive])).stdout.split("\n").filter((name) => /[^/]$/.test(name));
    };
    expect(await names()).toEqual([
      "README.md",
      "rollouts/multiply/main.ts",
      "rollouts/multiply/package.json",
    ]);
    expect(await names("rollouts/multiply")).toEqual([
      "rollouts/multiply/main.ts",
      "rollouts/multiply/package.json",
    ]);
    await expect(repositories.archive(id, sha, "missing")).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  test("no token, a foreign token and a strange repository are refused in words", async () => {
    await newClone("private");
    const { accounts } = server.platform;
    const stranger = await accounts.createUser({ email: `s${Date.now()}@example.com`, name: "Stranger" });
    const { token } = await accounts.tokens.mint({
      userId: stranger.id,
      kind: "personal",
      name: "t",
      lifetimeDays: 1,
    });
    expect(await refusedClone(cloneUrl("private/workspace", "osm_wrong"))).toContain("Authentication failed");
    expect(await refusedClone(cloneUrl("private/workspace", token))).toContain(
      "You are not a member of the workspace",
    );
    expect(await refusedClone(cloneUrl("nowhere/workspace"))).toContain(
      "No workspace of this server belongs to",
    );
  });

  test("paths that climb are no repositories", async () => {
    for (const path of ["/..%2f..%2fetc/workspace.git", "/first/..%2f..%2fx.git", "/first/../../x.git"]) {
      const response = await server.request("GET", `${path}/info/refs?service=git-upload-pack`, {
        headers: { authorization: `Basic ${btoa(`x:${server.ownerToken}`)}` },
      });
      expect(response.status).toBe(404);
    }
  });

  test("a taken name and a reserved one are refused", async () => {
    await server.json("POST", "/api/cli/workspaces", { json: { name: "taken" } });
    expect(await server.json("POST", "/api/cli/workspaces", { json: { name: "taken" } })).toMatchObject({
      status: 409,
      body: { code: "CONFLICT", field: "name" },
    });
    expect(await server.json("POST", "/api/cli/workspaces", { json: { name: "api" } })).toMatchObject({
      status: 400,
    });
    expect(await server.json("POST", "/api/cli/workspaces", { json: { name: "Not A Slug" } })).toMatchObject({
      status: 400,
      body: { code: "VALIDATION", field: "name" },
    });
  });
});
