import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples } from "./options.ts";

export function addWorkspace(program: Command, run: Run): void {
  const workspace = program.command("workspace").description("workspaces and their Git repositories");

  workspace
    .command("list")
    .description("list the workspaces you are a member of, with their clone URLs")
    .addHelpText("after", examples("osmosis workspace list"))
    .action(run(async (context) => (await import("../workspace/list.ts")).listWorkspaces(context)));

  workspace
    .command("create <name>")
    .description("create a workspace and its repository from the template")
    .option("--clone [folder]", "clone the repository, too (default folder: the workspace's name)")
    .addHelpText("after", examples("osmosis workspace create my-agents --clone"))
    .action(
      run(async (context, name: string, options: { clone?: string | true }) =>
        (await import("../workspace/create.ts")).createWorkspace(context, name, options),
      ),
    );

  workspace
    .command("clone <name> [folder]")
    .description("clone a workspace's repository; Git asks your osmosis login for the password")
    .addHelpText("after", examples("osmosis workspace clone my-agents"))
    .action(
      run(async (context, name: string, folder: string | undefined) =>
        (await import("../workspace/create.ts")).cloneWorkspace(context, name, folder),
      ),
    );
}
