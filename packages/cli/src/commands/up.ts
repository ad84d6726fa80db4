import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { DEFAULT_PORT } from "../platform/url.ts";
import { examples, wholeNumber } from "./options.ts";

export type UpOptions = {
  readonly data?: string;
  readonly port: number;
  readonly host: string;
  readonly worker: boolean;
  readonly workers: number;
};

export function addUp(program: Command, run: Run): void {
  program
    .command("up")
    .description("start the platform on this machine: server, workers and dashboard; Ctrl-C ends it")
    .option(
      "--data <folder>",
      "keeps everything (default: .osmosis in a source checkout, else ~/.local/share/osmosis)",
    )
    .option("--port <n>", "port to listen on; 0 takes any free one", wholeNumber(0, 65_535), DEFAULT_PORT)
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--workers <n>", "workers on this machine; each holds a run of its own", wholeNumber(0, 64), 1)
    .option("--no-worker", "only the server, as --workers 0; workers run elsewhere")
    .addHelpText(
      "after",
      examples(
        "osmosis up",
        "osmosis up --data ~/osmosis --port 8080 --workers 4",
        "osmosis up --no-worker --json",
      ),
    )
    .action(run(async (context, options: UpOptions) => (await import("../up/up.ts")).up(context, options)));
}
