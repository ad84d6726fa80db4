import type { Io, Sink } from "./io.ts";
import { createProgress, type Progress } from "./output/progress.ts";
import { stringifyStrict } from "./output/strict-json.ts";
import { printable, type Style } from "./output/style.ts";

export type OutputMode = "rich" | "plain" | "json";

/** What a command works with: the edge, the root options and the voice. */
export type Context = {
  readonly io: Io;
  readonly version: string;
  readonly mode: OutputMode;
  /** True when a question can be asked: rich output, and a person at both ends. */
  readonly interactive: boolean;
  /** The process's environment with the dotenv file beneath it. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** `--platform`. */
  readonly platformFlag: string | undefined;
  readonly style: Style;
  readonly errorStyle: Style;
  /** A line about what is going on, on stderr; silent with `--json`. */
  readonly note: (text: string) => void;
  /** Something to know that does not stop the command, on stderr in every mode. */
  readonly warn: (code: string, message: string) => void;
  readonly progress: () => Progress;
};

export function createContext(parts: {
  io: Io;
  version: string;
  mode: OutputMode;
  env: Context["env"];
  platformFlag: string | undefined;
  style: Style;
  errorStyle: Style;
}): Context {
  const { io, mode, version, errorStyle } = parts;
  const progressMode = progressModeOf(mode, io.stderr, parts.env);
  return {
    ...parts,
    interactive: mode === "rich" && io.stdinIsTerminal && io.stderr.isTerminal,
    note(text) {
      if (progressMode !== "silent") io.stderr.write(`${errorStyle.dim(printable(text))}\n`);
    },
    warn(code, message) {
      io.stderr.write(
        mode === "json"
          ? `${stringifyStrict({ schema_version: 1, cli_version: version, warning: { code, message } })}\n`
          : `${errorStyle.yellow("Warning:")} ${printable(message)}\n`,
      );
    },
    progress: () => createProgress(io.stderr, errorStyle, io.now, progressMode),
  };
}

/**
 * `OSMOSIS_PROGRESS` shows progress although the answer is JSON, as a bar or as lines: for a program that passes our
 * stderr on to a person.
 */
function progressModeOf(mode: OutputMode, stderr: Sink, env: Context["env"]): "bar" | "lines" | "silent" {
  const told = env["OSMOSIS_PROGRESS"];
  if (told === "bar" || told === "lines") return told;
  if (mode === "json") return "silent";
  return stderr.isTerminal && env["TERM"] !== "dumb" ? "bar" : "lines";
}
