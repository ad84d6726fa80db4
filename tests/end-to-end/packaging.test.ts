import { mkdir, readFile, readdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CHECKOUT, runProgram } from "./support/command.ts";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";

/** What a workspace gets from this checkout: the packed SDK, and a template that works as it is. */

let platform: TestPlatform;

beforeAll(async () => {
  platform = await startTestPlatform();
}, 180_000);

afterAll(async () => {
  await platform?.[Symbol.asyncDispose]();
});

const TYPESCRIPT = join(CHECKOUT, "node_modules/typescript/bin/tsc");

test("the packed SDK and protocol install into an empty project, can be imported, and bring their types", async () => {
  const vendor = join(platform.workspace, "vendor");
  const archives = (await readdir(vendor))
    .filter((name) => name.endsWith(".tgz"))
    .map((name) => join(vendor, name));
  expect(archives).toHaveLength(2);
  const folder = join(platform.workspace, "../empty");
  await mkdir(folder);
  const project = { cwd: folder, env: platform.env };
  await writeFile(
    join(folder, "package.json"),
    JSON.stringify({ name: "empty", private: true, type: "module" }),
  );
  await runProgram("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline", ...archives], project);

  await writeFile(
    join(folder, "main.ts"),
    `import { AgentWorkflow, Grader, LocalBackend, type AgentWorkflowContext, type GraderContext } from "@osmosis/sdk";
import { scriptedModel } from "@osmosis/sdk/testing";
import { RolloutRequest } from "@osmosis/protocol";

class Echo extends AgentWorkflow {
  override run(ctx: AgentWorkflowContext) {
    return [...ctx.prompt, { role: "assistant", content: "4" }];
  }
}
class Exact extends Grader {
  override grade(ctx: GraderContext): number {
    // @ts-expect-error the reward is a number
    if (ctx.label === "never") ctx.setReward("1");
    return 1;
  }
}
console.log(new LocalBackend({ workflow: Echo, grader: Exact }).health().workflow, typeof scriptedModel, typeof RolloutRequest.parse);
`,
  );
  expect(await runProgram(process.execPath, ["main.ts"], project)).toBe("Echo function function\n");
  const options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2024", "--types", ""];
  await runProgram(process.execPath, [TYPESCRIPT, ...options, "main.ts"], project);
});

test("a fresh clone of a new workspace installs, and its tests and its types are right", async () => {
  const clone = { cwd: platform.workspace, env: platform.env };
  await runProgram("npm", ["ci", "--no-audit", "--no-fund", "--prefer-offline"], clone);
  expect(await runProgram("npm", ["test"], clone)).toMatch(/pass [1-9]\d*/);
  await runProgram("npm", ["run", "check"], clone);
  expect(await platform.git("status", "--porcelain")).toBe("");
});

test("a workspace with an older SDK has the one of this checkout after the commands of its README", async () => {
  const { workspace, env } = platform;
  const clone = { cwd: workspace, env };
  const sdk = join(workspace, "vendor/osmosis-sdk-0.1.0.tgz");
  const older = join(workspace, "vendor/osmosis-sdk-0.0.9.tgz");
  // The SDK of another day: a word more in its README, and a version less.
  const unpacked = join(workspace, "../older-sdk");
  await mkdir(unpacked);
  await runProgram("tar", ["xzf", sdk, "-C", unpacked], clone);
  const readme = join(unpacked, "package/README.md");
  await writeFile(readme, `${await readFile(readme, "utf8")}\nOlder.\n`);
  await runProgram("tar", ["czf", older, "-C", unpacked, "package"], clone);
  await rename(sdk, join(workspace, "../newer-sdk.tgz"));
  await runProgram("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline", older], clone);
  const installed = () => readFile(join(workspace, "node_modules/@osmosis/sdk/README.md"), "utf8");
  expect(await installed()).toContain("Older.");

  const page = await readFile(join(workspace, "README.md"), "utf8");
  const [, block = ""] = /## After an update of Osmosis\n.*?```\n(.*?)```/s.exec(page) ?? [];
  const commands = block.split("\n").filter((line) => line !== "");
  expect(commands).toHaveLength(3);
  for (const command of commands) {
    await runProgram("sh", ["-c", command.replace("<checkout of osmosis>", CHECKOUT)], clone);
  }
  expect(await installed()).not.toContain("Older.");
  expect((await readdir(join(workspace, "vendor"))).toSorted()).toEqual([
    "osmosis-protocol-0.1.0.tgz",
    "osmosis-sdk-0.1.0.tgz",
  ]);
  const lock = await readFile(join(workspace, "package-lock.json"), "utf8");
  expect(lock).not.toContain("osmosis-sdk-0.0.9");
  // And from the lock alone, as the platform installs it.
  await runProgram("npm", ["ci", "--no-audit", "--no-fund", "--prefer-offline"], clone);
  expect(await installed()).not.toContain("Older.");
});
