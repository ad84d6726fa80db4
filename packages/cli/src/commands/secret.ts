import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples, wholeNumber, type ListOptions } from "./options.ts";

export function addSecret(program: Command, run: Run): void {
  const secret = program
    .command("secret")
    .description("API keys and passwords that runs may use; stored encrypted");

  secret
    .command("set <name>")
    .description("store a secret; its value is asked for, or read from a variable or from stdin")
    .option("--scope <scope>", "personal or workspace", "personal")
    .option("--env <variable>", "take the value of this environment variable")
    .option("--stdin", "take the value from stdin")
    .addHelpText(
      "after",
      examples(
        "osmosis secret set OPENAI_API_KEY",
        "osmosis secret set OPENAI_API_KEY --env OPENAI_API_KEY --scope workspace",
        "cat key.txt | osmosis secret set OPENAI_API_KEY --stdin",
      ),
    )
    .action(
      run(async (context, name: string, options: { scope: string; env?: string; stdin?: boolean }) =>
        (await import("../secret/secret.ts")).setSecret(context, name, options),
      ),
    );

  secret
    .command("list")
    .description("list the names of stored secrets; values are never shown")
    .option("--scope <scope>", "all, personal or workspace", "all")
    .option("--limit <n>", "how many at most (1-50)", wholeNumber(1, 50))
    .option("--all", "every page")
    .addHelpText("after", examples("osmosis secret list", "osmosis secret list --scope workspace --json"))
    .action(
      run(async (context, options: ListOptions & { scope: string }) =>
        (await import("../secret/secret.ts")).listSecrets(context, options),
      ),
    );

  secret
    .command("delete <name>")
    .description("delete a stored secret")
    .option("--scope <scope>", "personal or workspace", "personal")
    .option("-y, --yes", "do not ask")
    .addHelpText("after", examples("osmosis secret delete OPENAI_API_KEY --yes"))
    .action(
      run(async (context, name: string, options: { scope: string; yes?: boolean }) =>
        (await import("../secret/secret.ts")).deleteSecret(context, name, options),
      ),
    );
}
