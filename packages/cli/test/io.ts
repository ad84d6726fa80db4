import { Interrupted, type Io } from "../src/io.ts";
import { runCli } from "../src/program.ts";

export type Ran = { readonly code: number; readonly stdout: string; readonly stderr: string };

export type RunOptions = {
  readonly cwd: string;
  /** The whole environment, beside PATH. */
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  /** Answers to questions, in order; with them stdin and stderr are terminals. */
  readonly answers?: readonly (boolean | string)[];
  readonly signal?: AbortSignal;
};

/** Runs a command line in this process, with its own environment, folder and streams, over the real network. */
export async function runInProcess(argv: readonly string[], options: RunOptions): Promise<Ran> {
  let stdout = "";
  let stderr = "";
  const answers = [...(options.answers ?? [])];
  const isTerminal = options.answers !== undefined;
  const answer = (question: string): boolean | string => {
    const next = answers.shift();
    if (next === undefined) throw new Error(`nobody answers: ${question}`);
    return next;
  };
  const io: Io = {
    argv,
    env: {
      PATH: process.env["PATH"],
      HOME: options.cwd,
      OSMOSIS_CREDENTIAL_STORE: "file",
      GIT_CONFIG_GLOBAL: "/dev/null",
      ...options.env,
    },
    cwd: options.cwd,
    home: options.env?.["HOME"] ?? options.cwd,
    hostname: "test-machine",
    operatingSystem: process.platform,
    nodePath: process.execPath,
    processId: process.pid,
    stdout: { isTerminal: false, columns: () => Number.POSITIVE_INFINITY, write: (text) => (stdout += text) },
    stderr: { isTerminal, columns: () => Number.POSITIVE_INFINITY, write: (text) => (stderr += text) },
    stdinIsTerminal: isTerminal,
    readStdin: () => Promise.resolve(options.stdin ?? ""),
    fetch: globalThis.fetch,
    now: Date.now,
    interrupted: options.signal ?? new AbortController().signal,
    prompts: {
      confirm: (question) => {
        const given = answer(question);
        if (given === "ctrl-c") throw new Interrupted();
        return Promise.resolve(given === true);
      },
      secret: (question) => Promise.resolve(String(answer(question))),
    },
  };
  const code = await runCli(io);
  return { code, stdout, stderr };
}

/** The last line that is JSON. */
export function lastJson(text: string): unknown {
  return JSON.parse(text.trim().split("\n").at(-1) ?? "");
}

/** The error of a failed `--json` command. */
export function errorOf(ran: Ran): {
  code: string;
  message: string;
  hint?: string;
  details: Record<string, unknown>;
} {
  // Written by the command under test, one line above.
  const envelope = lastJson(ran.stderr) as { error: ReturnType<typeof errorOf> };
  return envelope.error;
}
