import { appendFile, mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { gitIn } from "./folder.ts";
import { lastJson, type Ran } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";

const EVAL = "configs/eval/multiply-local-openai.toml";
const GRADER = "rollouts/multiply-local-openai/grader.ts";

// Every talk of Git with the platform starts Node for the credentials.
vi.setConfig({ testTimeout: 120_000 });

let platform: TestPlatform;
/** Two people's clones of one workspace. */
let mine: string;
let theirs: string;

beforeAll(async () => {
  platform = await startPlatform();
  mine = join(platform.folder, "mine");
  theirs = join(platform.folder, "theirs");
  const created = await platform.run(["workspace", "create", "shared", "--clone", mine, "--json"]);
  if (created.code !== 0) throw new Error(created.stderr);
  const uploaded = await run("dataset", "upload", "data/multiply.jsonl", "--yes", "--json");
  if (uploaded.code !== 0) throw new Error(uploaded.stderr);
  // The helper in the clone's configuration asks the command for the token.
  process.env["XDG_CONFIG_HOME"] = platform.env["XDG_CONFIG_HOME"];
  await gitIn(platform.folder, "clone", "-q", mine, theirs);
  const config = await gitIn(mine, "config", "--local", "--list");
  for (const line of config.split("\n")) {
    const [name = "", ...value] = line.split("=");
    if (name === "remote.origin.url") await gitIn(theirs, "config", name, value.join("="));
    if (name.startsWith("credential.")) await gitIn(theirs, "config", "--add", name, value.join("="));
  }
}, 120_000);

afterAll(async () => {
  await platform?.[Symbol.asyncDispose]();
});

const run = (...argv: string[]) => platform.run(argv, { cwd: mine });

/** Commits a line in a file of a clone, and says the commit. */
async function commit(clone: string, file: string): Promise<string> {
  await mkdir(dirname(join(clone, file)), { recursive: true });
  await appendFile(join(clone, file), "// changed\n");
  await gitIn(clone, "add", file);
  await gitIn(clone, "commit", "-qm", `Change ${file}`);
  return await gitIn(clone, "rev-parse", "HEAD");
}

async function pushedCheck(): Promise<unknown> {
  const { data } = lastJson((await run("doctor", "--json")).stdout) as {
    data: { checks: { name: string }[] };
  };
  return data.checks.find(({ name }) => name === "pushed");
}

/** What a dry run says: the commit of its text, and of its JSON with the warnings. */
async function dryRun(): Promise<{ text: Ran; commit: string; warnings: string[]; codes: string[] }> {
  const text = await run("eval", "submit", EVAL, "--dry-run");
  const json = await run("eval", "submit", EVAL, "--dry-run", "--json");
  expect([text.code, json.code]).toEqual([0, 0]);
  const { resource } = lastJson(json.stdout) as {
    resource: { checked: { commit_sha: string }; warnings: string[] };
  };
  const codes = json.stderr
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => (JSON.parse(line) as { warning: { code: string } }).warning.code);
  return { text, commit: resource.checked.commit_sha, warnings: resource.warnings, codes };
}

test("what another clone pushed is what the dry run names, and all are warned that it differs", async () => {
  const before = await gitIn(mine, "rev-parse", "refs/remotes/origin/main");
  await commit(theirs, "notes.md");
  const pushed = await commit(theirs, GRADER);
  await gitIn(theirs, "push", "-q", "origin", "main");

  const said = await dryRun();
  const warning =
    "main on the platform is 2 commits ahead of this clone, and rollouts/multiply-local-openai differs there: " +
    "the run uses what is there. `git pull` brings it.";
  expect(said).toMatchObject({ commit: pushed, warnings: [warning], codes: ["CLONE_BEHIND"] });
  expect(said.text.stdout).toContain(`main (${pushed.slice(0, 8)})`);
  expect(said.text.stderr).toContain(warning);

  const asked = await platform.run(["eval", "submit", EVAL], { cwd: mine, answers: [false] });
  expect(asked.stderr).toContain(warning);
  expect(asked.stderr).toContain(`main (${pushed.slice(0, 8)})`);
  expect(await pushedCheck()).toMatchObject({
    status: "warning",
    message: "main on the platform is 2 commits ahead of this clone; runs use what is there",
    hint: "`git pull`",
  });
  // Looking has moved nothing.
  expect(await gitIn(mine, "rev-parse", "refs/remotes/origin/main")).toBe(before);
});

test("where both have commits of their own, a pull comes before the push", async () => {
  await commit(mine, "mine.md");
  const said = await dryRun();
  expect(said.warnings).toEqual([
    "main on the platform is 2 commits ahead of this clone, and rollouts/multiply-local-openai differs there: " +
      "the run uses what is there. 1 local commit is not there; a push is refused until you have the others': " +
      "`git pull --rebase`, then `git push`.",
  ]);
  expect(await pushedCheck()).toMatchObject({
    message: expect.stringMatching(/^1 unpushed commit, and main on the platform is 2 commits ahead/),
    hint: expect.stringMatching(/^`git pull --rebase`, then `git push`/),
  });
});

test("after the pull and the push there is nothing to say", async () => {
  await gitIn(mine, "pull", "-q", "--rebase");
  await gitIn(mine, "push", "-q");
  const head = await gitIn(mine, "rev-parse", "HEAD");
  expect(await dryRun()).toMatchObject({ commit: head, warnings: [], codes: [] });
  expect(await pushedCheck()).toMatchObject({ status: "ok", message: "every commit is pushed" });
});

test("without an answer of origin the commit is still the platform's, as another one than the clone has", async () => {
  await gitIn(theirs, "pull", "-q", "--rebase", "origin", "main");
  const pushed = await commit(theirs, GRADER);
  await gitIn(theirs, "push", "-q", "origin", "main");
  // A clone whose Git may not talk to anybody.
  const helper = join(platform.folder, "no-network.gitconfig");
  await writeFile(helper, "[protocol]\n\tallow = never\n");
  const env = { GIT_CONFIG_GLOBAL: helper };
  const ran = await platform.run(["eval", "submit", EVAL, "--dry-run"], { cwd: mine, env });
  expect(ran.code).toBe(0);
  expect(ran.stdout).toContain(`main (${pushed.slice(0, 8)})`);
  expect(ran.stderr).toContain(
    `main on the platform is at ${pushed.slice(0, 8)}, a commit that this clone does not have.`,
  );
});
