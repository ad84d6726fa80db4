import { describe, expect, test } from "vitest";
import { errorOf, lastJson, runInProcess } from "../test/io.ts";
import { temporaryFolder } from "../test/folder.ts";

async function osmosis(...argv: string[]) {
  await using folder = await temporaryFolder();
  return await runInProcess(argv, { cwd: folder.path });
}

describe("help", () => {
  test("without arguments the command shows its help and succeeds", async () => {
    const ran = await osmosis();
    expect(ran).toMatchObject({ code: 0, stderr: "" });
    expect(ran.stdout).toContain("Usage: osmosis");
    expect(ran.stdout).toContain("quickstart");
  });

  test("a group without a command shows its help and succeeds", async () => {
    const ran = await osmosis("dataset");
    expect(ran).toMatchObject({ code: 0, stderr: "" });
    expect(ran.stdout).toContain("validate");
  });
});

describe("a wrong call exits with 2", () => {
  test.each([
    ["an unknown command gets one suggestion", "datset", "Did you mean `osmosis dataset`?"],
    ["an unknown subcommand gets one suggestion", "dataset uplod", "Did you mean `osmosis dataset upload`?"],
    ["a command that moved is named", "login", "Did you mean `osmosis auth login`?"],
    [
      "so does one of a command that has work of its own",
      "worker lst",
      "Did you mean `osmosis worker list`?",
    ],
    ["an unknown option gets one suggestion", "dataset list --lmit 3", "Did you mean --limit?"],
    ["a number out of range says the range", "dataset list --limit 99", "from 1 to 50"],
    ["a missing argument is named", "dataset upload", "'file'"],
    ["too many arguments", "dataset list more", "Too many arguments"],
    ["--json and --plain together", "dataset list --json --plain", "exclude each other"],
    ["--platform without a value", "auth whoami --platform", "--platform needs a value"],
  ])("%s", async (_, line, text) => {
    const ran = await osmosis(...line.split(" "));
    expect(ran).toMatchObject({ code: 2, stdout: "" });
    expect(ran.stderr).toContain(text);
  });

  test("with --json the error is an envelope that names the command", async () => {
    const ran = await osmosis("dataset", "preview", "--json");
    expect(ran).toMatchObject({ code: 2, stdout: "" });
    expect(lastJson(ran.stderr)).toMatchObject({
      schema_version: 1,
      command: "dataset preview",
      error: { code: "VALIDATION" },
    });
  });
});

describe("outside of everything", () => {
  test("a workspace command says that it needs a workspace", async () => {
    const ran = await osmosis("dataset", "list", "--json");
    expect(ran.code).toBe(1);
    expect(errorOf(ran)).toMatchObject({ code: "WORKSPACE_REQUIRED" });
    expect(errorOf(ran).hint).toContain("osmosis workspace create");
  });

  test("whoami without a login says how to sign in", async () => {
    const ran = await osmosis("auth", "whoami", "--json");
    expect(ran.code).toBe(1);
    expect(errorOf(ran)).toMatchObject({ code: "AUTH_REQUIRED" });
    expect(errorOf(ran).hint).toContain("osmosis auth login");
  });

  test("a platform that does not answer is a network failure with a remedy", async () => {
    await using folder = await temporaryFolder();
    const ran = await runInProcess(["auth", "whoami", "--platform", "http://127.0.0.1:9", "--json"], {
      cwd: folder.path,
      env: { OSMOSIS_TOKEN: "token" },
    });
    expect(ran.code).toBe(1);
    expect(errorOf(ran)).toMatchObject({ code: "NETWORK" });
    expect(errorOf(ran).hint).toContain("osmosis up");
  });

  test("a token never goes to another machine in the clear", async () => {
    await using folder = await temporaryFolder();
    const ran = await runInProcess(["auth", "whoami", "--platform", "http://example.com", "--json"], {
      cwd: folder.path,
      env: { OSMOSIS_TOKEN: "token" },
    });
    expect(ran.code).toBe(1);
    expect(errorOf(ran).message).toContain("without encryption");
  });

  test("a token that is bound to another platform is not sent", async () => {
    await using folder = await temporaryFolder();
    const ran = await runInProcess(["auth", "whoami", "--platform", "https://a.example.com", "--json"], {
      cwd: folder.path,
      env: { OSMOSIS_TOKEN: "token", OSMOSIS_TOKEN_PLATFORM_URL: "https://b.example.com" },
    });
    expect(ran.code).toBe(1);
    expect(errorOf(ran)).toMatchObject({ code: "CONFLICT" });
  });
});
