import { OsmosisError } from "@osmosis/protocol";
import { sql, type Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { WorkspaceAccess } from "../workspaces/service.ts";
import type { RunKind } from "./tables.ts";

/** A run with its creator, the metrics of its last step and those of its newest validation. */
export type RunRow = Awaited<ReturnType<ReturnType<typeof runRows>["execute"]>>[number];

function runRows(db: Kysely<Tables>) {
  return db
    .selectFrom("runs")
    .innerJoin("users", "users.id", "runs.created_by")
    .leftJoin("run_steps", (join) =>
      join.onRef("run_steps.run_id", "=", "runs.id").onRef("run_steps.step", "=", "runs.committed_steps"),
    )
    .leftJoinLateral(
      (by) =>
        by
          .selectFrom("run_steps as validated")
          .select(["validated.step", "validated.metrics"])
          .whereRef("validated.run_id", "=", "runs.id")
          .whereRef("validated.step", "<=", "runs.committed_steps")
          // In the words of the index.
          .where(sql<boolean>`jsonb_exists(validated.metrics, 'eval/validation/pass_rate')`)
          .orderBy("validated.step", "desc")
          .limit(1)
          .as("validation"),
      (join) => join.onTrue(),
    )
    .selectAll("runs")
    .select([
      "users.name as creator_name",
      "users.email as creator_email",
      "run_steps.metrics as last_metrics",
      "validation.step as validation_step",
      "validation.metrics as validation_metrics",
    ]);
}

/** Newest first. */
export async function listRuns(
  db: Kysely<Tables>,
  workspaceId: string,
  page: { kind: RunKind; limit: number; offset: number },
): Promise<{ rows: RunRow[]; total: number }> {
  const { total } = await db
    .selectFrom("runs")
    .select(sql<number>`count(*)::int`.as("total"))
    .where("workspace_id", "=", workspaceId)
    .where("kind", "=", page.kind)
    .executeTakeFirstOrThrow();
  const rows = await runRows(db)
    .where("runs.workspace_id", "=", workspaceId)
    .where("runs.kind", "=", page.kind)
    .orderBy("runs.created_at", "desc")
    .orderBy("runs.id")
    .limit(page.limit)
    .offset(page.offset)
    .execute();
  return { rows, total };
}

/**
 * A run by its name or id.
 *
 * @param command - what the user asks for, to name the command that does it for a run of the other kind
 * @throws {OsmosisError} NOT_FOUND.
 */
export async function getRun(
  db: Kysely<Tables>,
  workspace: WorkspaceAccess,
  {
    kind,
    nameOrId,
    command = "info",
  }: { readonly kind: RunKind; readonly nameOrId: string; readonly command?: "info" | "compare" },
): Promise<RunRow> {
  const rows = await runRows(db)
    .where("runs.workspace_id", "=", workspace.id)
    .where("runs.kind", "=", kind)
    .where((by) => by.or([by("runs.name", "=", nameOrId), by("runs.id", "=", nameOrId)]))
    .execute();
  const row = rows.find((one) => one.name === nameOrId) ?? rows[0];
  if (row !== undefined) return row;
  const group = kind === "evaluation" ? "eval" : "train";
  const other = await otherKind(db, workspace, { kind, nameOrId });
  throw new OsmosisError(
    "NOT_FOUND",
    `There is no ${kind} run ${nameOrId} in the workspace ${workspace.name}.`,
    {
      hint:
        other === undefined
          ? `See \`osmosis ${group} list\` for the names.`
          : `${nameOrId} is ${other.what}: ` +
            (command === "compare"
              ? `\`osmosis ${other.group} compare\` compares two of them.`
              : `see \`osmosis ${other.group} ${command} ${nameOrId}\`.`),
    },
  );
}

/** Training runs and evaluations share their names; whoever has one at hand may ask the wrong command. */
async function otherKind(
  db: Kysely<Tables>,
  workspace: WorkspaceAccess,
  { kind, nameOrId }: { readonly kind: RunKind; readonly nameOrId: string },
): Promise<{ readonly what: string; readonly group: string } | undefined> {
  const found = await db
    .selectFrom("runs")
    .select("kind")
    .where("workspace_id", "=", workspace.id)
    .where("kind", "in", ["evaluation", "training"])
    .where((by) => by.or([by("name", "=", nameOrId), by("id", "=", nameOrId)]))
    .executeTakeFirst();
  if (found === undefined || found.kind === kind) return undefined;
  return found.kind === "evaluation"
    ? { what: "an evaluation run", group: "eval" }
    : { what: "a training run", group: "train" };
}
