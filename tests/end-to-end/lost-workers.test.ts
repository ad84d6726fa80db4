import { randomUUID } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestWorker, testRollout } from "../../packages/server/src/testing-worker.ts";
import { keyOfRollout } from "./support/journal.ts";
import { startRelay, type HeldRequest, type Relay } from "./support/relay.ts";
import { curvesOf, logOf, recordedRollouts, trainingEnd, type Curve } from "./support/runs.ts";
import { handedOutAgain, startTeam, trainingLines, type Team } from "./support/team.ts";
import { until } from "./support/until.ts";

/**
 * What becomes of the writes of a worker that has lost what it held. A relay between workers and server holds a write on
 * its way until it is too late, so that the server's answer to it is seen: that no double was written shows less.
 */

const STEPS = 3;
const PROMPTS = 4;
const SAMPLES = 4;
const TOTAL = STEPS * PROMPTS * SAMPLES;
const NAMES = ["ant", "bee", "cat"];

let opened: AsyncDisposableStack;
let team: Team;
let relay: Relay;
/** Every metric of the run that nothing happened to. */
let undisturbed: Curve;

beforeAll(async () => {
  await using stack = new AsyncDisposableStack();
  team = stack.use(await startTeam({ OSMOSIS_LEASE_SECONDS: "3" }));
  relay = stack.use(await startRelay(team.platform.url));
  await team.join(NAMES, relay.url);
  opened = stack.move();
  const { name } = await submit("alone", 1);
  expect((await trainingEnd(team.platform.client, name)).training_run).toMatchObject({ status: "finished" });
  undisturbed = await curvesOf(team.platform.client, name);
  expect(undisturbed["rollout/raw_reward"]).toHaveLength(STEPS);
}, 240_000);

afterAll(async () => {
  await opened?.disposeAsync();
}, 60_000);

test("a helper that was paused past its lease is refused when its rollouts arrive, and they are another's", async () => {
  const holding = relay.holdNext(({ path }) => /\/shares\/[^/]+\/rollouts$/.test(path));
  const { name } = await submit("helper", NAMES.length);
  const held = await holding;
  const shareId = held.path.split("/").at(-2) ?? "";
  const helper = await workerOfShare(shareId);
  const pid = await team.processOf(helper);
  process.kill(pid, "SIGSTOP");
  await until("the rollouts are handed out again", () => handedOutAgain(team.database, shareId, held.lease));
  process.kill(pid, "SIGCONT");

  const late = await held.release();
  expect(late.status).toBe(409);
  expect(JSON.parse(late.text)).toMatchObject({
    code: "CONFLICT",
    error: expect.stringMatching(/^The share (was given to another worker|was taken back|is gone)\./),
  });
  // What it says itself: it stops what it does by its own clock, or by an answer as the one above.
  await until(`${helper} knows`, () => /lease is gone|The share/.test(team.said(helper)));
  await expectUndisturbed(name);
  expect(acceptedLater(held)).toEqual([]);
  evidence({ helper, answer: late.text, said: saidOf(helper) });
}, 240_000);

test("a holder that was paused past its lease is refused whatever it writes: metrics, rollouts, state, weights, shares, log and end", async () => {
  let commits = 0;
  const holding = relay.holdNext(({ path }) => /\/runs\/[^/]+\/steps$/.test(path) && ++commits === 2);
  const { name } = await submit("holder", NAMES.length);
  const held = await holding;
  const runId = held.path.split("/").at(-2) ?? "";
  const former = await team.holderOf(name);
  const pid = await team.processOf(former);
  process.kill(pid, "SIGSTOP");
  const successor = await until("another worker takes the run", async () =>
    (await team.workersOn(name, "run")).find((one) => one !== former),
  );
  process.kill(pid, "SIGCONT");

  const late = await held.release();
  expect(late.status).toBe(409);
  expect(JSON.parse(late.text)).toMatchObject({
    code: "CONFLICT",
    error: `The run ${name} was given to another worker.`,
  });
  // The commit was under way. Everything else that a holder writes, with the very lease that it had:
  const run = createTestWorker({ url: relay.url, workerSecret: team.token }).run({
    run_id: runId,
    lease_token: held.lease,
  });
  const writes: Record<string, () => Promise<unknown>> = {
    heartbeat: () => run.heartbeat(),
    rollouts: () => run.record(testRollout({ phase: "train", step: 2 })),
    commit: () => run.commit(2, { metrics: { "rollout/raw_reward": 99 } }),
    checkpoint: () => run.checkpoint(2, { files: ["adapter_model.safetensors"] }),
    weights: () => run.publishWeights(2, ["adapter_model.safetensors"]),
    shares: () =>
      run.publish({
        share_id: randomUUID(),
        phase: "train",
        step: 2,
        tasks: [{ rollout_id: "late", row_index: 0, options: {} }],
      }),
    withdraw: () => run.withdraw(randomUUID()),
    collect: () => run.collect(null),
    log: () => run.log("too late"),
    finish: () => run.finish("failed", "too late"),
  };
  const answers: string[] = [];
  for (const [what, write] of Object.entries(writes)) {
    const error: unknown = await write().catch((failure: unknown) => failure);
    if (!(error instanceof OsmosisError)) throw new Error(`${what} was not refused`);
    expect(error, what).toMatchObject({ code: "CONFLICT", message: expect.stringContaining(name) });
    answers.push(`${what}: ${error.message}`);
  }
  for (const path of ["state/2/weights", "checkpoints/2/weights", "weights/2/weights"]) {
    const { status } = await run.put(path, "late");
    expect(status, path).toBe(409);
    answers.push(`${path}: ${status}`);
  }
  await until(`${former} knows`, () => /lease is gone|was given to another worker/.test(team.said(former)));
  await expectUndisturbed(name);
  expect((await logOf(team.platform.client, "train", name)).map(({ message }) => message)).not.toContain(
    "too late",
  );
  expect(acceptedLater(held)).toEqual([]);
  evidence({ former, successor, answer: late.text, answers, said: saidOf(former) });
}, 240_000);

test("a run whose holder is killed, and comes not back, ends elsewhere with the curve of an undisturbed one", async () => {
  const { client } = team.platform;
  const { name } = await submit("killed", NAMES.length);
  const first = await until("a step is committed", async () => {
    const steps = (await curvesOf(client, name))["rollout/raw_reward"]?.length ?? 0;
    if (steps === STEPS) throw new Error("the run went by too fast to be disturbed");
    return steps > 0 && (await team.workersOn(name, "run"))[0];
  });
  await team.lose(first);
  await expectUndisturbed(name);
  const said = (await logOf(client, "train", name)).map(({ message }) => message);
  const others = NAMES.filter((one) => one !== first).join("|");
  const hands = said.filter((message) => /takes the run|has fallen silent/.test(message));
  // On a machine with far too much to do it may change hands once more.
  expect(hands.slice(0, 3)).toEqual([
    `The worker ${first} takes the run (attempt 1).`,
    `The worker ${first} has fallen silent (attempt 1).`,
    expect.stringMatching(new RegExp(`^The worker (${others}) takes the run \\(attempt 2\\)\\.$`)),
  ]);
  evidence({ killed: first, counts: await team.recordedBy(name) });
}, 240_000);

async function submit(label: string, workers: number): Promise<{ name: string }> {
  const advanced = ['method = "full"', `rollout_workers = ${workers}`];
  const lines = trainingLines({ steps: STEPS, prompts: PROMPTS, samples: SAMPLES, advanced });
  return await team.submit(label, { kind: "train", lateMs: 300, lines });
}

async function workerOfShare(id: string): Promise<string> {
  const share = await team.database.db
    .selectFrom("run_shares")
    .select("worker")
    .where("id", "=", id)
    .executeTakeFirst();
  if (share?.worker == null) throw new Error("nobody holds the share");
  return share.worker;
}

/** The run ends as if nothing had happened: each rollout once, every metric the same. */
async function expectUndisturbed(name: string): Promise<void> {
  const { client } = team.platform;
  expect((await trainingEnd(client, name)).training_run).toMatchObject({
    status: "finished",
    error: null,
    current_step: STEPS,
    examples_processed_count: TOTAL,
  });
  expect(await curvesOf(client, name)).toEqual(undisturbed);
  const recorded = await recordedRollouts(client, "train", name);
  expect(recorded).toHaveLength(TOTAL);
  expect(new Set(recorded.map(keyOfRollout)).size).toBe(TOTAL);
}

/** What the server accepted under a lost lease after it was lost: from the write that it refused on. */
function acceptedLater({ lease }: HeldRequest): unknown[] {
  const under = relay.relayed.filter((one) => one.lease === lease);
  const refused = under.findIndex(({ status }) => status === 409);
  expect(refused).toBeGreaterThanOrEqual(0);
  return under.slice(refused).filter(({ status }) => status < 400);
}

function saidOf(name: string): string[] {
  return team
    .said(name)
    .split("\n")
    .filter((line) => line.startsWith("worker: "));
}

/** Printed on request only: for whoever wants to see the numbers. */
function evidence(facts: Record<string, unknown>): void {
  if (process.env["OSMOSIS_TEST_EVIDENCE"] === "1") process.stdout.write(`${JSON.stringify(facts)}\n`);
}
