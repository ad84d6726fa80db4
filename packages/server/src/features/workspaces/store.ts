import type { PageQuery } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";

/** The rollouts of a workspace, or of one branch of it; active ones first, then by branch and name. */
export async function listRollouts(
  db: Kysely<Tables>,
  workspaceId: string,
  query: PageQuery & { branch?: string | undefined },
) {
  let base = db.selectFrom("rollouts").where("workspace_id", "=", workspaceId);
  if (query.branch !== undefined) base = base.where("branch", "=", query.branch);
  const { total } = await base
    .select(({ fn }) => fn.countAll<number>().as("total"))
    .executeTakeFirstOrThrow();
  const rows = await base
    .selectAll()
    .orderBy("is_active", "desc")
    .orderBy("branch")
    .orderBy("name")
    .limit(query.limit)
    .offset(query.offset)
    .execute();
  return { rows, total };
}

/** What was pushed to a workspace, newest first. */
export async function listSyncEvents(db: Kysely<Tables>, workspaceId: string, query: PageQuery) {
  const base = db.selectFrom("sync_events").where("workspace_id", "=", workspaceId);
  const { total } = await base
    .select(({ fn }) => fn.countAll<number>().as("total"))
    .executeTakeFirstOrThrow();
  const rows = await base
    .selectAll()
    .orderBy("created_at", "desc")
    .orderBy("id")
    .limit(query.limit)
    .offset(query.offset)
    .execute();
  return { rows, total };
}
