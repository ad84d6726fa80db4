import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples, wholeNumber } from "./options.ts";

export type WorkerOptions = {
  readonly tokenFile?: string;
  readonly data?: string;
  readonly name?: string;
  readonly threads?: number;
};

export function addWorker(program: Command, run: Run): void {
  const worker = program
    .command("worker")
    .enablePositionalOptions()
    .description("work for a platform: run its evaluations and trainings on this machine; Ctrl-C ends it")
    .option("--token-file <file>", "holds the worker token that the platform's owner made")
    .option(
      "--data <folder>",
      "keeps downloads and what is under way (default: .osmosis/joined-worker in a source checkout, else ~/.local/share/osmosis/joined-worker)",
    )
    .option("--name <name>", "what the platform calls it (default: this machine's name with a suffix)")
    .option("--threads <n>", "threads that compute (default: 2)", wholeNumber(1, 256))
    .addHelpText(
      "after",
      examples(
        "osmosis worker token create --name lab --save-to lab.token",
        "osmosis worker --platform https://osmosis.example.com --token-file lab.token",
        "osmosis worker --platform http://127.0.0.1:7400 --token-file lab.token --data ~/worker --threads 4",
        "osmosis worker list",
      ),
    )
    .action(
      run(async (context, options: WorkerOptions) =>
        (await import("../worker/worker.ts")).work(context, options),
      ),
    );

  worker
    .command("list")
    .description("list the workers of the last day, whether they are there, and what each works on")
    .addHelpText("after", examples("osmosis worker list", "osmosis worker list --json"))
    .action(run(async (context) => (await import("../worker/list.ts")).listWorkers(context)));

  const token = worker
    .command("token")
    .description("what admits a worker; it gets the secrets of each run, so only the owner makes them");

  token
    .command("create")
    .description("make a worker token; it is shown once")
    .option("--name <name>", "what you recognise it by in the list", "worker")
    .option("--save-to <file>", "write the token into a new file that only you can read, and do not show it")
    .addHelpText(
      "after",
      examples(
        "osmosis worker token create --name lab --save-to lab.token",
        "osmosis worker token create --json | jq -r .resource.token",
      ),
    )
    .action(
      run(async (context, options: { name: string; saveTo?: string }) =>
        (await import("../worker/tokens.ts")).createToken(context, options),
      ),
    );

  token
    .command("list")
    .description("list the worker tokens that still work, without their text")
    .addHelpText("after", examples("osmosis worker token list", "osmosis worker token list --json"))
    .action(run(async (context) => (await import("../worker/tokens.ts")).listTokens(context)));

  token
    .command("revoke <token>")
    .description("end a worker token, by its id or its name; its workers end")
    .option("-y, --yes", "do not ask")
    .addHelpText("after", examples("osmosis worker token revoke lab --yes"))
    .action(
      run(async (context, which: string, options: { yes?: boolean }) =>
        (await import("../worker/tokens.ts")).revokeToken(context, which, options),
      ),
    );
}
