import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples, wholeNumber, type ListOptions, type LogOptions } from "./options.ts";

export function addDataset(program: Command, run: Run): void {
  const dataset = program.command("dataset").description("bring data sets to the platform and look at them");

  dataset
    .command("upload <file>")
    .description(
      "check a JSONL, CSV or Parquet file and upload it; the file's name becomes the data set's name",
    )
    .option("--overwrite", "replace the data set of that name")
    .option("-y, --yes", "do not ask")
    .addHelpText(
      "after",
      examples(
        "osmosis dataset upload data/multiply.jsonl",
        "osmosis dataset upload data/new.csv --overwrite --yes",
      ),
    )
    .action(
      run(async (context, file: string, options: { overwrite?: boolean; yes?: boolean }) =>
        (await import("../dataset/upload.ts")).uploadDataset(context, file, options),
      ),
    );

  dataset
    .command("list")
    .description("list the workspace's data sets")
    .option("--limit <n>", "how many at most (1-50)", wholeNumber(1, 50))
    .option("--all", "every page")
    .addHelpText("after", examples("osmosis dataset list", "osmosis dataset list --all --json"))
    .action(
      run(async (context, options: ListOptions) =>
        (await import("../dataset/show.ts")).listDatasets(context, options),
      ),
    );

  dataset
    .command("info <name>")
    .description("show a data set's state, size and rows")
    .addHelpText("after", examples("osmosis dataset info multiply"))
    .action(
      run(async (context, name: string) => (await import("../dataset/show.ts")).datasetInfo(context, name)),
    );

  dataset
    .command("preview <name>")
    .description("show the first rows of a data set on the platform")
    .option("--rows <n>", "how many (1-20)", wholeNumber(1, 20), 5)
    .addHelpText("after", examples("osmosis dataset preview multiply --rows 3"))
    .action(
      run(async (context, name: string, options: { rows: number }) =>
        (await import("../dataset/show.ts")).datasetPreview(context, name, options),
      ),
    );

  dataset
    .command("validate <file>")
    .description("check a file by the platform's rules; needs no login and no workspace")
    .addHelpText("after", examples("osmosis dataset validate data/multiply.jsonl"))
    .action(
      run(async (context, file: string) =>
        (await import("../dataset/validate.ts")).validateFile(context, file),
      ),
    );

  dataset
    .command("download <name>")
    .description("download a data set")
    .option("-o, --output <path>", "file or folder to write to (default: the current folder)")
    .option("--overwrite", "replace an existing file")
    .addHelpText("after", examples("osmosis dataset download multiply -o data/"))
    .action(
      run(async (context, name: string, options: { output?: string; overwrite?: boolean }) =>
        (await import("../dataset/download.ts")).downloadDataset(context, name, options),
      ),
    );

  dataset
    .command("logs <name>")
    .description("show what happened to a data set")
    .option("--limit <n>", "lines at most (1-200)", wholeNumber(1, 200), 50)
    .option("--cursor <cursor>", "go on from the next_cursor of an earlier page")
    .addHelpText("after", examples("osmosis dataset logs multiply"))
    .action(
      run(async (context, name: string, options: LogOptions) =>
        (await import("../dataset/show.ts")).datasetLogs(context, name, options),
      ),
    );
}
