import { lstat, mkdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import type { OperationResult } from "../output/result.ts";
import { findGitRoot } from "../workspace/workspace.ts";
import { missingDirectories } from "../workspace/layout.ts";
import { scaffoldFiles } from "./scaffold.ts";

const NAME = /^[a-z][a-z0-9-]*$/;

/**
 * Writes the smallest rollout that loads, and a configuration for each kind of run. Works offline.
 *
 * @throws OsmosisError `CONFLICT` when one of the files exists and `--force` is not given
 */
export async function initRollout(
  context: Context,
  name: string,
  options: { readonly force?: boolean },
): Promise<OperationResult> {
  if (!NAME.test(name) || name === "default") {
    throw new OsmosisError("VALIDATION", `"${name}" is not a rollout's name.`, {
      hint: "Use lower-case letters, digits and hyphens, beginning with a letter; not `default`.",
    });
  }
  const root = await findGitRoot(context);
  if (root === undefined) {
    throw new OsmosisError("WORKSPACE_REQUIRED", `${context.io.cwd} is not inside a Git repository.`, {
      hint: "Go to your workspace folder, or make one with `osmosis workspace create NAME --clone`.",
    });
  }
  const missing = missingDirectories(root);
  if (missing.length > 0) {
    throw new OsmosisError(
      "VALIDATION",
      `${root} is not a complete workspace: ${missing.join(", ")} missing.`,
      {
        hint: "Run `osmosis doctor --fix` to create what is missing.",
        details: { missing },
      },
    );
  }
  const files = scaffoldFiles(name);
  const folder = `rollouts/${name}`;
  const targets = [folder, ...files.map(({ path }) => path).filter((path) => !path.startsWith(`${folder}/`))];
  for (const target of targets) {
    const found = await lstat(join(root, target)).catch(() => undefined);
    if (found === undefined) continue;
    const isOurs = target === folder ? found.isDirectory() : found.isFile();
    if (options.force !== true || !isOurs) {
      throw new OsmosisError(
        "CONFLICT",
        `${target} exists${isOurs ? "" : " and is not what it should be"}.`,
        {
          hint: isOurs ? "Choose another name, or replace it with --force." : "Move it away first.",
        },
      );
    }
    await rm(join(root, target), { recursive: true });
  }
  for (const { path, text } of files) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text, { flag: "wx" });
  }
  return {
    kind: "operation",
    operation: "rollout.init",
    status: "success",
    message: `Created the rollout ${name}.`,
    fields: [["Files", files.map(({ path }) => path).join("\n")]],
    resource: { name, files: files.map(({ path }) => path) },
    nextSteps: [
      {
        command: `$EDITOR rollouts/${name}/workflow.ts rollouts/${name}/grader.ts`,
        description: "write the agent and its grader",
      },
      {
        command: `$EDITOR configs/eval/${name}.toml configs/training/${name}.toml`,
        description: "name the data set",
      },
      {
        command: "npm install && npm test",
        description: "take the rollout into package-lock.json and try it",
      },
      {
        command: `git add rollouts/${name} configs package-lock.json && git commit -m "Add ${name}" && git push`,
        description: "give it to the platform",
      },
      {
        command: `osmosis eval submit configs/eval/${name}.toml --dry-run`,
        description: "check everything that a run needs",
      },
    ],
    extras: { workspace_directory: root },
  };
}
