import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** The rollout in which everything goes wrong that can: one entrypoint a fault, and one whose rows go wrong one by one. */
export const FAULTY = "faulty";

/** The row that each fault happens at; the rows beside them are well. */
export const FAULTY_ROWS = {
  times_out: 1,
  returns_nothing: 2,
  returns_two_samples: 3,
  makes_two_models: 4,
  throws: 5,
  grader_throws: 6,
  grader_gives_nan: 7,
  grader_forgets: 8,
} as const;

export const ROWS = 10;

export async function addFaultyRollouts(workspace: string): Promise<void> {
  const folder = join(workspace, "rollouts", FAULTY);
  await mkdir(folder, { recursive: true });
  for (const [name, source] of Object.entries(ENTRYPOINTS)) await writeFile(join(folder, name), source);
}

const BASE = `
import { LocalBackend, serveRollout } from "@osmosis/sdk";
import { MultiplyGrader } from "../multiply-local-openai/grader.ts";
import { MultiplyWorkflow } from "../multiply-local-openai/workflow.ts";

const rowOf = (ctx) => Number(/-r(\\d+)-/.exec(ctx.rolloutId)?.[1]);
`;

const ENTRYPOINTS = {
  "throws.ts": `throw new Error("the toy box is empty");`,
  "never-listens.ts": `console.log("thinking"); setInterval(() => {}, 1000);`,
  "hangs.ts": `for (;;);`,
  "dies-once.ts": `${BASE}
class Dies extends MultiplyWorkflow {
  override async run(ctx) {
    if (rowOf(ctx) === 3) process.exit(9);
    return super.run(ctx);
  }
}
await serveRollout({ backend: new LocalBackend({ workflow: Dies, grader: MultiplyGrader }) });
`,
  "listens-and-dies.ts": `${BASE}
class Dies extends MultiplyWorkflow {
  override async run(ctx) {
    if (rowOf(ctx) >= 3) process.exit(9);
    return super.run(ctx);
  }
}
await serveRollout({ backend: new LocalBackend({ workflow: Dies, grader: MultiplyGrader }) });
`,
  "listens-and-hangs.ts": `${BASE}
class Hangs extends MultiplyWorkflow {
  override async run(ctx) {
    if (rowOf(ctx) >= 3) for (;;);
    return super.run(ctx);
  }
}
await serveRollout({ backend: new LocalBackend({ workflow: Hangs, grader: MultiplyGrader }) });
`,
  "all-rows-fail.ts": `${BASE}
class Fails extends MultiplyWorkflow {
  override async run() {
    throw new Error("no luck today");
  }
}
await serveRollout({ backend: new LocalBackend({ workflow: Fails, grader: MultiplyGrader }) });
`,
  "rows-go-wrong.ts": `${BASE}
import { osmosisModel } from "@osmosis/sdk/openai-agents";

class Workflow extends MultiplyWorkflow {
  override async run(ctx) {
    switch (rowOf(ctx)) {
      case ${FAULTY_ROWS.times_out}: return new Promise(() => {});
      case ${FAULTY_ROWS.returns_nothing}: return undefined;
      case ${FAULTY_ROWS.returns_two_samples}: return [[...ctx.prompt], [...ctx.prompt]];
      case ${FAULTY_ROWS.makes_two_models}: osmosisModel(); osmosisModel(); return undefined;
      case ${FAULTY_ROWS.throws}: throw new TypeError("no such toy");
      default: return super.run(ctx);
    }
  }
}
class Grader extends MultiplyGrader {
  override grade(ctx) {
    switch (rowOf(ctx)) {
      case ${FAULTY_ROWS.grader_throws}: throw new Error("cannot read the label");
      case ${FAULTY_ROWS.grader_gives_nan}: ctx.setReward(Number.NaN); return;
      case ${FAULTY_ROWS.grader_forgets}: return;
      default: super.grade(ctx);
    }
  }
}
await serveRollout({ backend: new LocalBackend({ workflow: Workflow, grader: Grader }) });
`,
};
