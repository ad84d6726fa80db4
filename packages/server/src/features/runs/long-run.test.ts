import { sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import { withDatabase } from "../../database/testing.ts";
import { outcomesSince } from "../run-analysis/run-history.ts";
import { pageOfRollouts } from "./rollouts.ts";

const ROLLOUTS = 40_000;

withDatabase("of a run with many rollouts", (database) => {
  beforeAll(async () => {
    const { db } = database();
    await sql`insert into users (id, name, email) values ('u', 'U', 'u@example.com')`.execute(db);
    await sql`insert into workspaces (id, name, repository, default_branch) values ('w', 'w', 'w/w', 'main')`.execute(
      db,
    );
    await sql`
      insert into runs (id, workspace_id, kind, name, status, created_by, rollout_id, rollout, entrypoint, commit_sha,
        dataset_id, dataset_version_id, dataset_name, dataset_rows, model, config, secret_sources, state_files)
      values ('run', 'w', 'training', 'run', 'running', 'u', '', 'r', 'main.ts', 'c', 'd', 'v', 'd', 8, '{}', '{}', '{}', '[]')
    `.execute(db);
    await sql`
      insert into run_rollouts (run_id, rollout_id, phase, step, row_index, sample_index, outcome, prompt_tokens,
        completion_tokens, model_calls, prefix_breaks, duration_ms, body_key, body_start, body_end, created_at)
      select 'run', 'r' || n, 'train', n / 100 + 1, n % 8, n % 5, 'ok', 1, 1, 1, 0, 1, 'none', 0, 0,
        now() - (${ROLLOUTS}::int - n) * interval '1 minute'
      from generate_series(1, ${ROLLOUTS}::int) n`.execute(db);
    await sql`analyze run_rollouts`.execute(db);
  }, 60_000);

  test("a page is read in the order of an index, not by sorting all of them", async () => {
    const plan = JSON.stringify(
      await pageOfRollouts(database().db, "run", { limit: 20, offset: 0 }).explain("json"),
    );
    expect(plan).toContain("run_rollouts_shown");
    expect(plan).not.toMatch(/Seq Scan|Sort/);
  });

  test("what has just ended is counted without reading all of them", async () => {
    const since = new Date(Date.now() - 30 * 60_000);
    const plan = JSON.stringify(await outcomesSince(database().db, "run", since).explain("json"));
    expect(plan).toContain("run_rollouts_recent");
    expect(plan).not.toContain("Seq Scan");
  });
});
