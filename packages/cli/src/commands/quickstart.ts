import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples, wholeNumber } from "./options.ts";

export type QuickstartOptions = {
  readonly data?: string;
  readonly port?: number;
  readonly exit?: boolean;
};

export function addQuickstart(program: Command, run: Run): void {
  program
    .command("quickstart")
    .description("by example: start the platform, evaluate an agent, train its model, evaluate it again")
    .option("--exit", "shut everything down at the end instead of leaving the platform running")
    .option(
      "--data <folder>",
      "keeps everything (default: .osmosis in a source checkout, else ~/.local/share/osmosis)",
    )
    .option("--port <n>", "port of the platform", wholeNumber(0, 65_535))
    .addHelpText("after", examples("osmosis quickstart", "osmosis quickstart --exit --json"))
    .action(
      run(async (context, options: QuickstartOptions) =>
        (await import("../quickstart/quickstart.ts")).quickstart(context, options),
      ),
    );
}
