import { UsageError } from "./output/failure.ts";

/** The options that may stand anywhere before a literal `--`, taken out of the arguments. */
export type RootOptions = {
  readonly json: boolean;
  readonly plain: boolean;
  readonly envFile: string | undefined;
  readonly platform: string | undefined;
  /** The arguments without them. */
  readonly rest: readonly string[];
};

/** @throws UsageError when a value is missing, or when both output modes are wanted. */
export function takeRootOptions(argv: readonly string[]): RootOptions {
  const end = argv.includes("--") ? argv.indexOf("--") : argv.length;
  const rest: string[] = [];
  const values = new Map<string, string>();
  const flags = new Set<string>();
  for (let index = 0; index < end; index++) {
    const word = argv[index] ?? "";
    const [name, inline] = splitOption(word);
    if (word === "--json" || word === "--plain") flags.add(word);
    else if (name === "--platform" || name === "--env-file") {
      const value = inline ?? argv[++index];
      if (value === undefined || value === "" || index >= end) {
        throw new UsageError(`${name} needs a value.`, `Write ${name}=VALUE.`);
      }
      values.set(name, value);
    } else rest.push(word);
  }
  if (flags.size === 2)
    throw new UsageError("--json and --plain exclude each other.", "Keep one of the two.");
  return {
    json: flags.has("--json"),
    plain: flags.has("--plain"),
    envFile: values.get("--env-file"),
    platform: values.get("--platform"),
    rest: [...rest, ...argv.slice(end)],
  };
}

function splitOption(word: string): [string, string?] {
  const at = word.indexOf("=");
  return at === -1 ? [word] : [word.slice(0, at), word.slice(at + 1)];
}
