import { hostname, homedir } from "node:os";
import { OsmosisError } from "@osmosis/protocol";

/**
 * The edge of the command: the only file that touches `process`. Everything else gets an `Io`, so a test can run a
 * command with its own environment, folder and streams.
 */
export type Io = {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly home: string;
  readonly hostname: string;
  readonly operatingSystem: NodeJS.Platform;
  /** The Node that runs this, for child processes. */
  readonly nodePath: string;
  readonly processId: number;
  readonly stdout: Sink;
  readonly stderr: Sink;
  readonly stdinIsTerminal: boolean;
  /** All of stdin, as text. */
  readonly readStdin: () => Promise<string>;
  readonly fetch: typeof fetch;
  readonly now: () => number;
  /** Aborts at the first Ctrl-C, SIGTERM or SIGHUP. */
  readonly interrupted: AbortSignal;
  readonly prompts: Prompts;
};

export type Sink = {
  readonly isTerminal: boolean;
  /** Width of the terminal; without one it is unlimited, unless `COLUMNS` says something. */
  readonly columns: () => number;
  readonly write: (text: string) => void;
};

/** Questions to a person. Each throws `Interrupted` when the answer is Ctrl-C. */
export type Prompts = {
  readonly confirm: (question: string, preset: boolean) => Promise<boolean>;
  readonly secret: (question: string) => Promise<string>;
};

/** Ctrl-C, by key or by signal. The command ends with exit code 130. */
export class Interrupted extends Error {
  constructor() {
    super("Interrupted.");
    this.name = "Interrupted";
  }
}

/** The real world. Installs the signal handlers. */
export function createIo(): Io {
  const interruption = new AbortController();
  let signals = 0;
  const interrupt = (): void => {
    signals += 1;
    interruption.abort(new Interrupted());
    // Whoever presses Ctrl-C three times does not want to wait for a clean end.
    if (signals >= 3) process.exit(130);
  };
  // Whoever holds us by our stdin is gone when it closes.
  if (process.env["OSMOSIS_SUPERVISED"] === "1") process.stdin.once("end", interrupt).resume();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, interrupt);
  // `osmosis list | head` closes the pipe early; that is no error.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(0);
    process.stderr.write(`Error: the answer could not be written: ${error.message}.\n`);
    process.exit(1);
  });
  return {
    argv: process.argv.slice(2),
    env: process.env,
    cwd: process.cwd(),
    home: homedir(),
    hostname: hostname(),
    operatingSystem: process.platform,
    nodePath: process.execPath,
    processId: process.pid,
    stdout: sink(process.stdout),
    stderr: sink(process.stderr),
    stdinIsTerminal: process.stdin.isTTY,
    readStdin,
    fetch: globalThis.fetch,
    now: Date.now,
    interrupted: interruption.signal,
    prompts: {
      async confirm(question, preset) {
        const { confirm, isCancel } = await import("@clack/prompts");
        const answer = await confirm({ message: question, initialValue: preset, output: process.stderr });
        if (isCancel(answer)) throw new Interrupted();
        return answer;
      },
      async secret(question) {
        const { password, isCancel } = await import("@clack/prompts");
        const answer = await password({ message: question, output: process.stderr });
        if (isCancel(answer)) throw new Interrupted();
        return answer;
      },
    },
  };
}

/** Ends the process, whatever still runs: a keyring daemon that never answers must not hold it. */
export async function exit(code: number): Promise<never> {
  // What could not be written, as to a full disk, is known only when it has been tried, and ends us with 1.
  await new Promise<void>((resolve) => {
    process.stdout.write("", () => setImmediate(resolve));
  });
  process.exit(code);
}

/** SIGKILL to a process group, as far as anybody is left in it. */
export function killProcessGroup(leader: number): void {
  try {
    process.kill(-leader, "SIGKILL");
  } catch {
    // Nobody is.
  }
}

function sink(stream: NodeJS.WriteStream): Sink {
  return {
    isTerminal: stream.isTTY,
    columns: () => stream.columns || Number(process.env["COLUMNS"]) || Number.POSITIVE_INFINITY,
    write: (text) => {
      stream.write(text);
    },
  };
}

async function readStdin(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(Buffer.from(chunk as Uint8Array));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
  } catch {
    throw new OsmosisError("VALIDATION", "What came on stdin is not UTF-8.", {
      hint: "Bring bytes that are no text as base64.",
    });
  }
}
