import { resolve } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { render } from "../output/render.ts";
import type { DetailResult } from "../output/result.ts";
import { findGitRoot, readIdentity } from "../workspace/workspace.ts";
import { checkWorkspace, type Check } from "./checks.ts";
import { fixWorkspace } from "./fix.ts";

const MARKS: Readonly<Record<Check["status"], string>> = { ok: "✓", warning: "!", error: "✗", skipped: "–" };

/**
 * Checks a workspace. It works signed out and offline.
 *
 * @throws OsmosisError `WORKSPACE_REQUIRED` outside of a Git repository, `VALIDATION` when something is missing without
 * which nothing works
 */
export async function doctor(
  context: Context,
  path: string | undefined,
  options: { readonly fix?: boolean },
): Promise<DetailResult> {
  const { io } = context;
  const folder = resolve(io.cwd, path ?? ".");
  const root = await findGitRoot(context, folder).catch(() => undefined);
  if (root === undefined) {
    throw new OsmosisError("WORKSPACE_REQUIRED", `${folder} is not inside a Git repository.`, {
      hint: "Go to your workspace, or make one with `osmosis workspace create NAME --clone`.",
    });
  }
  const fixed = options.fix === true ? await fixWorkspace(context, root) : [];
  const identity = await readIdentity(context, root);
  const checks = await checkWorkspace(context, root, identity);
  const errors = checks.filter((check) => check.status === "error");
  const data = {
    valid: errors.length === 0,
    workspace_directory: root,
    git: identity === undefined ? null : { identity: identity.name, remote_url: identity.displayUrl },
    checks,
    missing: checks.flatMap((check) => (check.status === "error" ? (check.missing ?? []) : [])),
    fixed,
  };
  const result: DetailResult = {
    kind: "detail",
    data,
    title: root,
    fields: [
      ...checks.map(
        (check) =>
          [
            `${MARKS[check.status]} ${check.name}`,
            check.hint === undefined || check.status === "ok"
              ? check.message
              : `${check.message}\n${check.hint}`,
          ] as const,
      ),
      ...(fixed.length === 0 ? [] : [["Created", fixed.join(", ")] as const]),
    ],
  };
  if (errors.length === 0) return result;
  // The whole picture first; the error that follows names only what is wrong.
  if (context.mode !== "json") io.stdout.write(render(result, context));
  throw new OsmosisError("VALIDATION", `The workspace ${root} is not complete.`, {
    hint: options.fix === true ? "Correct what is named above." : "Run `osmosis doctor --fix`.",
    details: { ...data, issues: errors.map((check) => `${check.name}: ${check.message}`) },
  });
}
