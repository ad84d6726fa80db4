import { evalRoutes, trainingRoutes } from "@osmosis/protocol";
import { confirmOrRefuse } from "../confirm.ts";
import type { Context } from "../context.ts";
import type { OperationResult } from "../output/result.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { RUN_WORD, type RunKind } from "./kind.ts";

/** Asks the platform to stop a run, and says in which state the run is then. */
export async function stopRun(
  context: Context,
  kind: RunKind,
  name: string,
  options: { readonly yes?: boolean },
): Promise<OperationResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const isSure = await confirmOrRefuse(context, {
    isYes: options.yes === true,
    question: `Stop the ${RUN_WORD[kind]} ${name}?`,
    preset: false,
    summary: { run: name },
  });
  const extras = workspaceExtras(workspace);
  if (!isSure)
    return {
      kind: "operation",
      operation: `${kind}.stop`,
      status: "cancelled",
      message: "Cancelled.",
      extras,
    };
  const answer = await client.call(kind === "eval" ? evalRoutes.stop : trainingRoutes.stop, {
    params: { name },
    body: {},
  });
  return {
    kind: "operation",
    operation: `${kind}.stop`,
    status: "success",
    message:
      answer.status === "stopped"
        ? `${name} is stopped.`
        : `${name} is asked to stop; it is ${answer.status}.`,
    resource: { ...answer, name },
    extras,
  };
}
