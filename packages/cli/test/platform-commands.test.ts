import { appendFile, mkdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { gitIn } from "./folder.ts";
import { errorOf, lastJson } from "./io.ts";
import { until } from "./until.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";

let platform: TestPlatform;
let workspace: string;
const EVAL = "configs/eval/multiply-local-openai.toml";
const TRAIN = "configs/training/multiply-local-openai.toml";

beforeAll(async () => {
  platform = await startPlatform();
  workspace = join(platform.folder, "workspace");
  const created = await platform.run(["workspace", "create", "demo", "--clone", workspace, "--json"]);
  if (created.code !== 0) throw new Error(created.stderr);
}, 120_000);

afterAll(async () => {
  await platform?.[Symbol.asyncDispose]();
});

const run = (...argv: string[]) => platform.run(argv, { cwd: workspace });

describe("signing in", () => {
  test("whoami names the person, the platform and the workspace", async () => {
    const ran = await run("auth", "whoami", "--json");
    expect(ran).toMatchObject({ code: 0, stderr: "" });
    expect(lastJson(ran.stdout)).toMatchObject({
      schema_version: 1,
      data: { platform_url: platform.url, source: "login", workspace: { name: "demo", role: "owner" } },
    });
  });

  test("a refused token costs no login", async () => {
    const refused = await run("auth", "login", "--token", "not-a-token", "--json");
    expect(refused.code).toBe(1);
    expect(errorOf(refused)).toMatchObject({ code: "AUTH_REQUIRED" });
    const foreign = await platform.run(["auth", "whoami", "--json"], {
      cwd: workspace,
      env: { OSMOSIS_TOKEN: "a-foreign-token" },
    });
    expect(foreign.code).toBe(1);
    expect(errorOf(foreign)).toMatchObject({ code: "AUTH_REQUIRED" });
    expect(errorOf(foreign).hint).toContain("OSMOSIS_TOKEN");
    expect((await run("auth", "whoami")).code).toBe(0);
  });

  test("in a clone of a platform where nobody signed in, its address is told", async () => {
    const env = { XDG_CONFIG_HOME: join(platform.folder, "nobody"), OSMOSIS_PLATFORM_URL: "" };
    const ran = await platform.run(["dataset", "list", "--json"], { cwd: workspace, env });
    expect(errorOf(ran)).toMatchObject({ code: "AUTH_REQUIRED" });
    expect(errorOf(ran).hint).toContain(`osmosis auth login --platform ${platform.url}`);
  });

  test("a token that cannot be sent is refused without being printed", async () => {
    const ran = await platform.run(["auth", "whoami", "--json"], {
      cwd: workspace,
      env: { OSMOSIS_TOKEN: "osm_hush\nhush" },
    });
    expect(ran.code).toBe(1);
    expect(errorOf(ran)).toMatchObject({ code: "AUTH_REQUIRED" });
    expect(ran.stdout + ran.stderr).not.toContain("osm_hush");
  });

  test("an expired login says so, and stays", async () => {
    const home = join(platform.folder, "expired");
    const env = { XDG_CONFIG_HOME: home };
    const data = join(platform.folder, "data");
    await platform.run(["auth", "login", "--local", "--data", data], { env });
    const path = join(home, "osmosis/credentials.json");
    const text = await readFile(path, "utf8");
    await writeFile(path, text.replace(/"expires_at": "[^"]+"/, '"expires_at": "2020-01-01T00:00:00.000Z"'));
    const ran = await platform.run(["auth", "whoami", "--json"], { env, cwd: workspace });
    expect(ran.code).toBe(1);
    expect(errorOf(ran)).toMatchObject({ code: "AUTH_REQUIRED" });
    expect(errorOf(ran).message).toContain("expired at 2020");
    expect(await readFile(path, "utf8")).toContain("sealed_token");
  });

  test("signing out forgets the login and revokes its token", async () => {
    const env = { XDG_CONFIG_HOME: join(platform.folder, "other") };
    const data = join(platform.folder, "data");
    await platform.run(["auth", "login", "--local", "--data", data], { env });
    const unsure = await platform.run(["auth", "logout", "--json"], { env });
    expect(errorOf(unsure)).toMatchObject({ code: "INTERACTIVE_REQUIRED" });
    const ran = await platform.run(["auth", "logout", "--yes", "--json"], { env });
    expect(ran).toMatchObject({ code: 0, stderr: "" });
    expect((await platform.run(["auth", "whoami"], { env })).code).toBe(1);
    expect((await run("auth", "whoami")).code).toBe(0);
  });
});

describe("the workspace", () => {
  test("doctor finds everything in place", async () => {
    const ran = await run("doctor", "--json");
    expect(ran).toMatchObject({ code: 0, stderr: "" });
    expect(lastJson(ran.stdout)).toMatchObject({ data: { valid: true, missing: [] } });
  });

  test("doctor looks at the node that the workspace's tests would run on", async () => {
    const bin = join(platform.folder, "old-node");
    await mkdir(bin);
    await writeFile(join(bin, "node"), "#!/bin/sh\necho v20.1.0\n", { mode: 0o755 });
    const env = { PATH: `${bin}:${process.env["PATH"] ?? ""}` };
    const ran = await platform.run(["doctor", "--json"], { cwd: workspace, env });
    const { data } = lastJson(ran.stdout) as { data: { checks: unknown[] } };
    expect(data.checks[0]).toMatchObject({
      name: "node",
      status: "warning",
      message: expect.stringContaining("20.1.0"),
      hint: expect.stringContaining("export PATH="),
    });
  });

  test("push works with the login that made the clone", async () => {
    await writeFile(join(workspace, "notes.md"), "notes\n");
    await gitIn(workspace, "add", "notes.md");
    await gitIn(workspace, "commit", "-qm", "Add notes");
    // The helper in the clone's configuration asks the command for the token.
    process.env["XDG_CONFIG_HOME"] = platform.env["XDG_CONFIG_HOME"];
    await gitIn(workspace, "push", "-q");
    expect(lastJson((await run("doctor", "--json")).stdout)).toMatchObject({ data: { valid: true } });
  });

  test("a workspace's name that is taken is a conflict", async () => {
    const ran = await run("workspace", "create", "demo", "--json");
    expect(ran.code).toBe(1);
    expect(errorOf(ran)).toMatchObject({ code: "CONFLICT" });
  });

  test("the rollouts of a pushed branch are listed", async () => {
    const ran = await run("rollout", "list", "--json");
    expect(lastJson(ran.stdout)).toMatchObject({
      items: [{ name: "multiply-local-openai", branch: "main" }],
    });
  });
});

describe("data sets", () => {
  test("a data set is uploaded, listed, previewed and downloaded again", async () => {
    const upload = await run("dataset", "upload", "data/multiply.jsonl", "--json");
    expect(upload).toMatchObject({ code: 0, stderr: "" });
    expect(lastJson(upload.stdout)).toMatchObject({
      status: "success",
      operation: "dataset.upload",
      resource: { file_name: "multiply", status: "uploaded", row_count: 1000 },
      git: { identity: "demo/workspace" },
    });
    const list = await run("dataset", "list", "--json");
    expect(lastJson(list.stdout)).toMatchObject({ items: [{ file_name: "multiply" }], total_count: 1 });
    const preview = await run("dataset", "preview", "multiply", "--rows", "2", "--json");
    expect(lastJson(preview.stdout)).toMatchObject({ data: { requested_rows: 2, returned_rows: 2 } });
    await run("dataset", "download", "multiply", "-o", "copy.jsonl");
    expect(await readFile(join(workspace, "copy.jsonl"), "utf8")).toBe(
      await readFile(join(workspace, "data/multiply.jsonl"), "utf8"),
    );
    const again = await run("dataset", "download", "multiply", "-o", "copy.jsonl", "--json");
    expect(errorOf(again)).toMatchObject({ code: "CONFLICT" });
  });

  test("the same name again needs --overwrite, and a yes", async () => {
    const plain = await run("dataset", "upload", "data/multiply.jsonl", "--json");
    expect(errorOf(plain)).toMatchObject({ code: "CONFLICT" });
    expect(errorOf(plain).hint).toContain("--overwrite");
    const unsure = await run("dataset", "upload", "data/multiply.jsonl", "--overwrite", "--json");
    expect(errorOf(unsure)).toMatchObject({
      code: "INTERACTIVE_REQUIRED",
      details: { prompt: "Replace the data set multiply?" },
    });
    const sure = await run("dataset", "upload", "data/multiply.jsonl", "--overwrite", "--yes", "--json");
    expect(sure).toMatchObject({ code: 0 });
  });

  test("an upload that is interrupted leaves no data set behind", async () => {
    const rows = Array.from({ length: 200_000 }, (_, index) =>
      JSON.stringify({ user_prompt: `What is ${index} and one?`, ground_truth: String(index + 1) }),
    );
    await writeFile(join(workspace, "data/large.jsonl"), rows.join("\n"));
    const interruption = new AbortController();
    const upload = platform.run(["dataset", "upload", "data/large.jsonl", "--json"], {
      cwd: workspace,
      signal: interruption.signal,
    });
    interruption.abort(new Error("Ctrl-C"));
    expect(await upload).toMatchObject({ code: 130, stdout: "" });
    const list = await run("dataset", "list", "--json");
    expect(list.stdout).not.toContain('"file_name":"large","status":"uploaded"');
  });
});

describe("secrets", () => {
  test("a secret is stored from a variable, listed by name and deleted", async () => {
    const set = await platform.run(["secret", "set", "MY_KEY", "--env", "SOURCE", "--json"], {
      cwd: workspace,
      env: { SOURCE: "value-that-is-secret" },
    });
    expect(set).toMatchObject({ code: 0, stderr: "" });
    const list = await run("secret", "list", "--json");
    expect(lastJson(list.stdout)).toMatchObject({ items: [{ name: "MY_KEY", scope: "personal" }] });
    expect(set.stdout + list.stdout).not.toContain("value-that-is-secret");
    const wrongScope = await run("secret", "delete", "MY_KEY", "--scope", "workspace", "--yes", "--json");
    expect(errorOf(wrongScope).hint).toContain("--scope personal");
    expect((await run("secret", "delete", "MY_KEY", "--yes")).code).toBe(0);
  });

  test("nobody to ask for the value is an error, not a hang", async () => {
    expect(errorOf(await run("secret", "set", "MY_KEY", "--json"))).toMatchObject({
      code: "INTERACTIVE_REQUIRED",
    });
  });
});

/** Checks a configuration with this text. */
const withConfig = async (text: string, ...flags: string[]) => {
  await writeFile(join(workspace, "configs/eval/case.toml"), text);
  return await run("eval", "submit", "configs/eval/case.toml", "--dry-run", "--json", ...flags);
};

describe("submitting", () => {
  const experiment = `[experiment]
rollout = "multiply-local-openai"
entrypoint = "main.ts"
model_path = "osmosis/tiny-agent"
dataset = "multiply"
`;
  const secrets = "[secrets]\nrequired = []\n";

  test("the shipped configurations pass every check", async () => {
    for (const [kind, config] of [
      ["eval", EVAL],
      ["train", TRAIN],
    ] as const) {
      const ran = await run(kind, "submit", config, "--dry-run", "--json");
      expect(ran).toMatchObject({ code: 0 });
      expect(lastJson(ran.stdout)).toMatchObject({ status: "noop", resource: { dry_run: true } });
    }
  });

  test("--model takes the place of experiment.model_path", async () => {
    const ran = await run("eval", "submit", EVAL, "--dry-run", "--model", "osmosis/tiny-agnt", "--json");
    expect(errorOf(ran).message).toContain("did you mean osmosis/tiny-agent?");
  });

  test("a dry run says how large the run would be, and finds what only the platform knows", async () => {
    const ran = await run("train", "submit", TRAIN, "--dry-run", "--json");
    expect(lastJson(ran.stdout)).toMatchObject({
      resource: {
        checked: { dataset_rows: 1000, rows: 800, steps: 50, rollouts: 6400, validation_rollouts: 1000 },
      },
    });
    const told = await run("train", "submit", TRAIN, "--dry-run");
    expect(told.stdout).toContain("50 steps, 800 of 1,000 rows, 6,400 rollouts, 1,000 more for validation");
    const typo = await withConfig(`${experiment.replace('"multiply"', '"multipli"')}\n${secrets}`);
    expect(typo.code).toBe(1);
    expect(errorOf(typo).message).toContain("there is no data set multipli; did you mean multiply?");
    expect(lastJson((await run("train", "list", "--json")).stdout)).toMatchObject({ total_count: 0 });
  });

  test("an unknown key is named with its line and what it may have meant", async () => {
    const ran = await withConfig(`${experiment}\n[evaluation]\nlimt = 3\n${secrets}`);
    expect(ran.code).toBe(1);
    expect(errorOf(ran)).toMatchObject({
      code: "VALIDATION",
      message: "configs/eval/case.toml:8: evaluation.limt is not a known key (did you mean limit?).",
    });
  });

  test("a key in the wrong table is told where it belongs", async () => {
    const ran = await withConfig(`${experiment}\n[advanced]\nbatch_size = 3\n${secrets}`);
    expect(errorOf(ran).message).toBe(
      "configs/eval/case.toml:8: advanced.batch_size is not a known key (did you mean evaluation.batch_size?).",
    );
  });

  test("thousands of faults are counted, and the first of them told", async () => {
    const keys = Array.from({ length: 2000 }, (_, n) => `k${n} = 1\n`).join("");
    const ran = await withConfig(`${experiment}\n[evaluation]\n${keys}${secrets}`);
    expect(errorOf(ran).message).toContain("has 2000 faults; the first 50");
    expect(errorOf(ran).details["issues"]).toHaveLength(50);
  });

  test("a file in another encoding than UTF-8 is refused; a byte order mark and CRLF are taken", async () => {
    const path = join(workspace, "configs/eval/encoded.toml");
    const submit = () => run("eval", "submit", "configs/eval/encoded.toml", "--dry-run", "--json");
    const text = await readFile(join(workspace, EVAL), "utf8");
    await writeFile(path, Buffer.from(`# gr\u00fc\u00dfe\n${text}`, "latin1"));
    expect(errorOf(await submit()).message).toContain("encoded.toml is not in UTF-8");
    await writeFile(path, `\ufeff${text.replaceAll("\n", "\r\n")}`);
    expect(await submit()).toMatchObject({ code: 0 });
    await rm(path);
  });

  test("every fault is told at once", async () => {
    const ran = await withConfig(`${experiment}seed = 1\n\n[evaluation]\nn = "two"\n[evalution]\n${secrets}`);
    expect(errorOf(ran).details["issues"]).toMatchObject([
      { key: "experiment.seed", line: 6 },
      { key: "evaluation.n", line: 9 },
      { key: "evalution", line: 10, key_correction: "evaluation" },
    ]);
  });

  test("a wrong type says what was expected", async () => {
    const ran = await withConfig(`${experiment}[evaluation]\nn = "two"\n${secrets}`);
    expect(errorOf(ran).message).toBe(
      "configs/eval/case.toml:7: evaluation.n must be a number, not a text in quotes.",
    );
    const low = await withConfig(`${experiment}[evaluation]\nn = 0\n${secrets}`);
    expect(errorOf(low).message).toBe("configs/eval/case.toml:7: evaluation.n must be at least 1.");
    const broken = await withConfig(`${experiment}[evaluation]\npass_threshold = nan\n${secrets}`);
    expect(errorOf(broken).message).toBe(
      "configs/eval/case.toml:7: evaluation.pass_threshold must be a number, not nan.",
    );
    const missing = await withConfig(experiment);
    expect(errorOf(missing).message).toBe("configs/eval/case.toml: secrets is missing.");
  });

  test("text that is no TOML is shown with line and column", async () => {
    const ran = await withConfig(`${experiment}x = = 1\n`);
    expect(errorOf(ran).message).toContain("configs/eval/case.toml:6:5 is not valid TOML");
  });

  test("a file that is far too large for a configuration is refused unread, and a long line is cut", async () => {
    await writeFile(join(workspace, "configs/eval/large.toml"), "x".repeat(2 * 1024 ** 2));
    const large = await run("eval", "submit", "configs/eval/large.toml", "--yes", "--json");
    expect(errorOf(large)).toMatchObject({ code: "VALIDATION" });
    expect(errorOf(large).message).toContain("2097152 bytes");
    await writeFile(join(workspace, "configs/eval/large.toml"), `a = ${"[".repeat(100_000)}`);
    const long = await run("eval", "submit", "configs/eval/large.toml", "--yes", "--json");
    expect(long.code).toBe(1);
    expect(long.stderr.length).toBeLessThan(5000);
    await rm(join(workspace, "configs/eval/large.toml"));
  });

  test("branch and commit_sha exclude each other", async () => {
    const ran = await withConfig(`${experiment}branch = "main"\ncommit_sha = "abcdef1"\n${secrets}`);
    expect(errorOf(ran).message).toContain("give either branch or commit_sha, not both");
  });

  test.each([
    ["an entrypoint above its folder", 'entrypoint = "../../../etc/passwd"', "relative path inside"],
    [
      "an entrypoint that does not exist",
      'entrypoint = "missing.ts"',
      "there is no file rollouts/multiply-local-openai/missing.ts",
    ],
  ])("%s is refused", async (_, line, text) => {
    const ran = await withConfig(`${experiment.replace('entrypoint = "main.ts"', line)}${secrets}`);
    expect(ran.code).toBe(1);
    expect(errorOf(ran).message).toContain(text);
  });

  test("an entrypoint that leads outside by a symbolic link is refused", async () => {
    await symlink("/etc/hostname", join(workspace, "rollouts/multiply-local-openai/link.ts"));
    const ran = await withConfig(`${experiment.replace("main.ts", "link.ts")}${secrets}`);
    expect(errorOf(ran).message).toContain("leads outside");
  });

  test("a configuration outside of its folder or of the workspace is refused", async () => {
    await writeFile(join(platform.folder, "outside.toml"), experiment + secrets);
    const outside = await run("eval", "submit", "../outside.toml", "--dry-run", "--json");
    expect(errorOf(outside).message).toContain("outside of the workspace");
    const wrong = await run("train", "submit", EVAL, "--dry-run", "--json");
    expect(errorOf(wrong).hint).toContain("configs/training/");
    const missing = await run("eval", "submit", "configs/eval/none.toml", "--json");
    expect(errorOf(missing)).toMatchObject({ code: "NOT_FOUND" });
  });

  test("a missing secret is named, and a secrets file supplies it", async () => {
    const text = `${experiment}[secrets]\nrequired = ["SOME_KEY"]\n`;
    const missing = await withConfig(text);
    expect(missing.code).toBe(1);
    expect(errorOf(missing)).toMatchObject({
      code: "INTERACTIVE_REQUIRED",
      details: { missing: ["SOME_KEY"] },
    });
    expect(errorOf(missing).hint).toContain("osmosis secret set SOME_KEY");
    await writeFile(join(platform.folder, "keys.env"), "SOME_KEY=abc\n");
    expect((await withConfig(text, "--secrets-file", "../keys.env")).code).toBe(0);
  });

  test("code that was never pushed is an error with its remedy", async () => {
    await mkdir(join(workspace, "rollouts/unpushed"));
    await writeFile(join(workspace, "rollouts/unpushed/main.ts"), "export {};\n");
    const config = experiment.replace('"multiply-local-openai"', '"unpushed"') + secrets;
    const uncommitted = await withConfig(config);
    expect(uncommitted.code).toBe(1);
    expect(errorOf(uncommitted).message).toContain("rollouts/unpushed/main.ts is not in the commit");
    expect(errorOf(uncommitted).hint).toContain("git add rollouts/unpushed");
    await gitIn(workspace, "add", "rollouts/unpushed");
    await gitIn(workspace, "commit", "-qm", "Add unpushed");
    expect(errorOf(await withConfig(config)).hint).toBe("Push your commits: `git push`.");
    await gitIn(workspace, "reset", "-q", "--hard", "HEAD~1");
  });

  test("changes that the run will not see are warned about", async () => {
    await appendFile(join(workspace, "rollouts/multiply-local-openai/main.ts"), "// local\n");
    const ran = await run("eval", "submit", EVAL, "--dry-run");
    expect(ran.code).toBe(0);
    expect(ran.stderr).toContain("uncommitted");
    expect(ran.stderr).toContain("rollouts/multiply-local-openai differs here");
    await gitIn(workspace, "checkout", "-q", "--", "rollouts");
  });

  test("without --yes and without a person nothing is started", async () => {
    const ran = await run("eval", "submit", EVAL, "--json");
    expect(ran).toMatchObject({ code: 1, stdout: "" });
    expect(errorOf(ran)).toMatchObject({
      code: "INTERACTIVE_REQUIRED",
      details: { summary: { Model: "osmosis/tiny-agent", "Data set": "multiply" } },
    });
    const declined = await platform.run(["eval", "submit", EVAL], { cwd: workspace, answers: [false] });
    expect(declined).toMatchObject({ code: 0 });
    expect(declined.stdout).toContain("Cancelled.");
  });
});

describe("runs, without a worker", () => {
  test("a submitted run is listed, described and logged, and stops when asked", async () => {
    const submitted = await run("train", "submit", TRAIN, "--yes", "--json");
    expect(submitted).toMatchObject({ code: 0 });
    const { resource } = lastJson(submitted.stdout) as { resource: { name: string; url: string } };
    expect(resource.url).toContain(resource.name);
    const list = await run("train", "list", "--json");
    expect(lastJson(list.stdout)).toMatchObject({
      items: [{ name: resource.name, status: "pending", model_name: "osmosis/tiny-agent" }],
    });
    const info = await run("train", "info", resource.name, "-o", "metrics.json", "--json");
    expect(lastJson(info.stdout)).toMatchObject({ data: { in_progress: true, checkpoints: [] } });
    expect(JSON.parse(await readFile(join(workspace, "metrics.json"), "utf8"))).toMatchObject({
      training_run: { name: resource.name },
    });
    expect(await run("train", "logs", resource.name, "--json")).toMatchObject({ code: 0 });
    expect(await run("train", "logs", resource.name, "--level", "loud", "--json")).toMatchObject({ code: 2 });
    const rollouts = await run("train", "rollouts", resource.name, "--phase", "train", "--json");
    expect(lastJson(rollouts.stdout)).toMatchObject({ items: [], total_count: 0 });
    expect(errorOf(await run("train", "rollouts", resource.name, "none", "--json")).code).toBe("NOT_FOUND");
    expect(errorOf(await run("train", "stop", resource.name, "--json")).code).toBe("INTERACTIVE_REQUIRED");
    const stop = await run("train", "stop", resource.name, "--yes", "--json");
    expect(lastJson(stop.stdout)).toMatchObject({
      operation: "train.stop",
      resource: { name: resource.name },
    });
    // A run that has ended ends the following of its log.
    expect(await run("train", "logs", resource.name, "--follow", "--json")).toMatchObject({ code: 0 });
  });

  test("waiting for a run that does not finish fails, with the run in the details", async () => {
    const waiting = run("eval", "submit", EVAL, "--yes", "--wait", "--json");
    const name = await until("the run is there", async () => {
      const { items } = lastJson((await run("eval", "list", "--json")).stdout) as {
        items: { name: string }[];
      };
      return items[0]?.name;
    });
    await run("eval", "stop", name, "--yes");
    const ran = await waiting;
    expect(ran).toMatchObject({ code: 1, stdout: "" });
    expect(errorOf(ran)).toMatchObject({ code: "RUN_FAILED", details: { run: { name, status: "stopped" } } });
    expect(errorOf(ran).hint).toContain(`osmosis eval logs ${name}`);
  });

  test("a run that does not exist is not found", async () => {
    expect(errorOf(await run("eval", "info", "nobody", "--json"))).toMatchObject({ code: "NOT_FOUND" });
    expect(errorOf(await run("train", "info", "", "--json"))).toMatchObject({
      code: "VALIDATION",
      message: "The name is empty.",
    });
  });

  test("base models are listed", async () => {
    const ran = await run("model", "list", "--type", "base", "--json");
    expect(lastJson(ran.stdout)).toMatchObject({
      base_models: { items: [{ model_name: "osmosis/tiny-agent" }] },
    });
  });

  test("a base model is described, with its context; one that is not there is no trained model, either", async () => {
    const ran = await run("model", "info", "osmosis/tiny-agent", "--json");
    expect(lastJson(ran.stdout)).toMatchObject({
      data: { base_model: { model_name: "osmosis/tiny-agent", parameters: 908_288, context_window: 512 } },
    });
    const unknown = errorOf(await run("model", "info", "osmosis/huge-agent", "--json"));
    expect(unknown).toMatchObject({
      code: "NOT_FOUND",
      message: "There is no base model osmosis/huge-agent.",
    });
  });
});

describe("an incomplete workspace", () => {
  test("doctor names what is missing, --fix creates it and overwrites nothing", async () => {
    await rename(join(workspace, "configs"), join(workspace, "configs-aside"));
    await writeFile(join(workspace, "AGENTS.md"), "mine\n");
    const broken = await run("doctor", "--json");
    expect(broken.code).toBe(1);
    expect(errorOf(broken)).toMatchObject({
      code: "VALIDATION",
      details: { valid: false, missing: ["configs/eval", "configs/training", "configs/AGENTS.md"] },
    });
    expect(errorOf(await run("dataset", "list", "--json")).hint).toContain("osmosis doctor --fix");
    const fixed = await run("doctor", "--fix", "--json");
    expect(fixed).toMatchObject({ code: 0 });
    expect(lastJson(fixed.stdout)).toMatchObject({ data: { valid: true } });
    expect(await readFile(join(workspace, "AGENTS.md"), "utf8")).toBe("mine\n");
    await gitIn(workspace, "clean", "-qfd", "configs-aside");
    await gitIn(workspace, "checkout", "-q", "--", ".");
  });

  test("rollout init writes what passes the checks once it is pushed, and never replaces", async () => {
    const made = await run("rollout", "init", "my-agent", "--json");
    expect(made).toMatchObject({ code: 0, stderr: "" });
    expect(errorOf(await run("rollout", "init", "my-agent", "--json"))).toMatchObject({ code: "CONFLICT" });
    const ran = await run("eval", "submit", "configs/eval/my-agent.toml", "--dry-run", "--json");
    expect(errorOf(ran).hint).toContain("git add rollouts/my-agent package-lock.json");
    expect(errorOf(await run("rollout", "init", "My_Agent", "--json"))).toMatchObject({ code: "VALIDATION" });
  });
});
