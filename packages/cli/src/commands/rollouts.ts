import { Option, type Command } from "commander";
import { RolloutOutcome } from "@osmosis/protocol";
import type { Run } from "./run-command.ts";
import type { RunKind } from "../runs/kind.ts";
import { examples, wholeNumber, type RolloutsOptions } from "./options.ts";

/** `rollouts` of a kind of run: what happened in each, and one conversation as it was. */
export function addRollouts(group: Command, run: Run, kind: RunKind): void {
  const command = group
    .command("rollouts <name> [rollout]")
    .description("list a run's rollouts with reward and error, or read the conversation of one, by its id")
    .addOption(new Option("--outcome <outcome>", "only these").choices(RolloutOutcome.options));
  if (kind === "train") {
    command.option("--step <n>", "only of this step", wholeNumber(0, 0x7fff_ffff));
    command.addOption(new Option("--phase <phase>", "only these").choices(["train", "validation"]));
  }
  command
    .option("--limit <n>", "how many at most (1-50)", wholeNumber(1, 50))
    .option("--all", "every page")
    .addHelpText(
      "after",
      examples(
        `osmosis ${kind} rollouts NAME`,
        kind === "eval"
          ? "osmosis eval rollouts NAME --outcome grader"
          : "osmosis train rollouts NAME --step 12 --limit 5",
        `osmosis ${kind} rollouts NAME ID --json`,
      ),
    )
    .action(
      run(async (context, name: string, rollout: string | undefined, options: RolloutsOptions) => {
        const { listRollouts, readRollout } = await import("../runs/rollouts.ts");
        return rollout === undefined
          ? await listRollouts(context, kind, name, options)
          : await readRollout(context, kind, name, rollout);
      }),
    );
}
