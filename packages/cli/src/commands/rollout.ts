import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples, wholeNumber, type ListOptions } from "./options.ts";

export function addRollout(program: Command, run: Run): void {
  const rollout = program.command("rollout").description("agent and grader code under rollouts/");

  rollout
    .command("init <name>")
    .description("create the smallest rollout that loads, and its two configurations")
    .option("-f, --force", "replace the rollout and the configurations of that name")
    .addHelpText("after", examples("osmosis rollout init my-agent"))
    .action(
      run(async (context, name: string, options: { force?: boolean }) =>
        (await import("../rollout/init.ts")).initRollout(context, name, options),
      ),
    );

  rollout
    .command("list")
    .description("list the rollouts that the platform found in pushed branches")
    .option("--branch <branch>", "only this branch")
    .option("--limit <n>", "how many at most (1-50)", wholeNumber(1, 50))
    .option("--all", "every page")
    .addHelpText("after", examples("osmosis rollout list", "osmosis rollout list --branch main"))
    .action(
      run(async (context, options: ListOptions & { branch?: string }) =>
        (await import("../rollout/list.ts")).listRollouts(context, options),
      ),
    );
}
