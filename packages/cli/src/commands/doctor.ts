import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples } from "./options.ts";

export function addDoctor(program: Command, run: Run): void {
  program
    .command("doctor [path]")
    .description("check a workspace: Git, folders, agent files, skills, Node, platform, login, pushed state")
    .option("--fix", "create what is missing from the template; nothing is ever overwritten")
    .addHelpText(
      "after",
      examples("osmosis doctor", "osmosis doctor --fix", "osmosis doctor ../my-workspace --json"),
    )
    .action(
      run(async (context, path: string | undefined, options: { fix?: boolean }) =>
        (await import("../doctor/doctor.ts")).doctor(context, path, options),
      ),
    );
}
