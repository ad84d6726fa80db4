import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples, wholeNumber } from "./options.ts";

export function addTrainer(program: Command, run: Run): void {
  const trainer = program
    .command("trainer")
    .description(
      "the platform as a trainer for programs that speak the Tinker wire, such as its official SDK",
    );
  const key = trainer.command("key").description("API keys of the trainer; they open nothing else");

  key
    .command("create")
    .description("make an API key; it is shown once")
    .option("--name <name>", "what you recognise it by in the list", "Tinker API key")
    .option("--days <n>", "how long it works (1-3650)", wholeNumber(1, 3650), 365)
    .addHelpText(
      "after",
      examples(
        "osmosis trainer key create",
        "osmosis trainer key create --name notebook --days 30",
        "export TINKER_API_KEY=$(osmosis trainer key create --json | jq -r .resource.api_key)",
      ),
    )
    .action(
      run(async (context, options: { name: string; days: number }) =>
        (await import("../trainer/keys.ts")).createKey(context, options),
      ),
    );

  key
    .command("list")
    .description("list your API keys that still work, without their text")
    .addHelpText("after", examples("osmosis trainer key list", "osmosis trainer key list --json"))
    .action(run(async (context) => (await import("../trainer/keys.ts")).listKeys(context)));

  key
    .command("revoke <key>")
    .description("end an API key, by its id or its name")
    .option("-y, --yes", "do not ask")
    .addHelpText("after", examples("osmosis trainer key revoke notebook --yes"))
    .action(
      run(async (context, which: string, options: { yes?: boolean }) =>
        (await import("../trainer/keys.ts")).revokeKey(context, which, options),
      ),
    );
}
