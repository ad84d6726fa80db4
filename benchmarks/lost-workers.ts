/**
 * How long the work of a lost worker waits for another, with the lease that a platform has by default: half a minute,
 * renewed every quarter of it. Five workers on Postgres share a run. In turn a helper and the holder of the run
 *
 * - get SIGKILL together with what would start them again, as if the machine were gone;
 * - get SIGSTOP, as if it slept; they go on after their work was handed out.
 *
 * Counted are the seconds until somebody else has the rollouts of the helper, until another worker holds the run, and
 * until that one has committed a step of it. The end is 1 when something took longer than a minute.
 *
 *     node benchmarks/lost-workers.ts
 */
import { trainingRoutes } from "@osmosis/protocol";
import { handedOutAgain, startTeam, trainingLines } from "../tests/end-to-end/support/team.ts";
import { until } from "../tests/end-to-end/support/until.ts";

const LONGEST_S = 60;

await using team = await startTeam({});
await team.join(["ant", "bee", "cat", "dog", "elk"]);
const { name } = await team.submit("long", {
  kind: "train",
  // Long enough that a helper is always in the middle of something.
  lateMs: 2000,
  lines: trainingLines({
    steps: 1000,
    prompts: 5,
    samples: 4,
    advanced: ['method = "full"', "rollout_workers = 5"],
  }),
});
const gone = new Set<string>();

await helper("killed");
await helper("paused");
await holder("killed");
await holder("paused");

async function helper(how: "killed" | "paused"): Promise<void> {
  const { id, worker, lease_token: lease } = await until("a worker helps", heldShare);
  const back = await take(how, worker);
  const startedAt = performance.now();
  await until("its rollouts are handed out again", () => handedOutAgain(team.database, id, lease));
  report(`helper ${how}: its rollouts are another's after`, startedAt);
  back();
}

async function holder(how: "killed" | "paused"): Promise<void> {
  // It has shown that it works.
  const before = await committed();
  await until("the run goes on", async () => (await committed()) > before);
  const former = await team.holderOf(name);
  const back = await take(how, former);
  const startedAt = performance.now();
  const steps = await committed();
  await until("another worker holds the run", async () => {
    const [now] = await team.workersOn(name, "run");
    return now !== undefined && now !== former;
  });
  report(`holder ${how}: another worker holds the run after`, startedAt);
  await until("it has committed a step", async () => (await committed()) > steps);
  report(`holder ${how}: that one has committed a step after`, startedAt);
  back();
}

/** Kills or pauses a worker. What is answered lets it go on. */
async function take(how: "killed" | "paused", worker: string): Promise<() => void> {
  gone.add(worker);
  if (how === "killed") {
    await team.lose(worker);
    return () => {};
  }
  const pid = await team.processOf(worker);
  process.kill(pid, "SIGSTOP");
  return () => process.kill(pid, "SIGCONT");
}

/** A share that somebody has just begun, so that its lease is as long as it can be. */
async function heldShare(): Promise<{ id: string; worker: string; lease_token: string } | undefined> {
  const share = await team.database.db
    .selectFrom("run_shares")
    .innerJoin("runs", (join) =>
      join
        .onRef("runs.id", "=", "run_shares.run_id")
        .onRef("runs.lease_token", "=", "run_shares.holder_token"),
    )
    .select(["run_shares.id", "run_shares.worker", "run_shares.lease_token", "run_shares.tasks"])
    .where("run_shares.withdrawn", "=", false)
    .where("run_shares.lease_expires_at", ">", new Date(Date.now() + 28_000))
    .execute();
  const found = share.find(({ worker, tasks }) => worker !== null && !gone.has(worker) && tasks.length > 1);
  if (found?.worker == null || found.lease_token === null) return undefined;
  return { id: found.id, worker: found.worker, lease_token: found.lease_token };
}

async function committed(): Promise<number> {
  const { training_run: run } = await team.platform.client.call(trainingRoutes.get, { params: { name } });
  if (run.status !== "running" && run.status !== "pending") throw new Error(`the run is ${run.status}`);
  return run.current_step;
}

function report(what: string, startedAt: number): void {
  const seconds = (performance.now() - startedAt) / 1000;
  console.log(`${what} ${seconds.toFixed(1)} s`);
  if (seconds > LONGEST_S) process.exitCode = 1;
}
