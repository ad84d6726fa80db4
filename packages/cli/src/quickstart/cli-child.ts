import { join } from "node:path";
import { ERROR_CODES, OsmosisError } from "@osmosis/protocol";
import { z } from "zod";
import type { Context } from "../context.ts";
import { startChild } from "../up/child.ts";

/** Runs the real command as a user would, in a process of its own, and answers its JSON envelope. */
export type RunCommand = (args: readonly string[], options: { cwd: string }) => Promise<unknown>;

const FailureEnvelope = z.object({
  error: z.object({
    code: z.string(),
    message: z.string(),
    hint: z.string().optional(),
    details: z.record(z.string(), z.unknown()).default({}),
  }),
});

const STOP_GRACE_MS = 3000;
const ENVELOPE_START = '{"schema_version":1';

/**
 * A runner of commands against one platform. The child's progress is passed on to our stderr; its envelopes are kept.
 * A token in our environment is left out: the quickstart has a login of its own, for its own platform.
 */
export function createCommandRunner(context: Context, platformUrl: string): RunCommand {
  const { io, env } = context;
  const program = join(import.meta.dirname, "../../bin/osmosis.js");
  const { OSMOSIS_TOKEN: _token, OSMOSIS_TOKEN_PLATFORM_URL: _bound, ...rest } = env;
  const isTerminal = io.stderr.isTerminal && env["TERM"] !== "dumb";
  const childEnv = {
    ...rest,
    OSMOSIS_PLATFORM_URL: platformUrl,
    OSMOSIS_SUPERVISED: "1",
    OSMOSIS_PROGRESS: isTerminal ? "bar" : "lines",
    ...(isTerminal ? { FORCE_COLOR: "1", COLUMNS: String(io.stderr.columns()) } : {}),
  };
  return async (args, { cwd }) => {
    io.interrupted.throwIfAborted();
    let answer = "";
    const said = splitEnvelopes((text) => io.stderr.write(text));
    const child = startChild({
      command: io.nodePath,
      args: [program, ...args, "--json"],
      env: childEnv,
      cwd,
      onStdout: (text) => {
        answer += text;
      },
      onStderr: said.push,
    });
    const stop = (): void => void child.stop(STOP_GRACE_MS);
    io.interrupted.addEventListener("abort", stop, { once: true });
    const ending = await child.ended;
    io.interrupted.removeEventListener("abort", stop);
    io.interrupted.throwIfAborted();
    if (ending.code === 0) return JSON.parse(answer.trim().split("\n").at(-1) ?? "null");
    throw failureOf(said.envelopes(), args);
  };
}

/** Passes text through, except lines that are envelopes: those are kept. */
function splitEnvelopes(write: (text: string) => void): {
  readonly push: (chunk: string) => void;
  readonly envelopes: () => readonly string[];
} {
  const kept: string[] = [];
  let open: string | undefined;
  return {
    push(chunk) {
      let text = (open ?? "") + chunk;
      open = undefined;
      for (let at = text.indexOf(ENVELOPE_START); at !== -1; at = text.indexOf(ENVELOPE_START)) {
        if (at > 0) write(text.slice(0, at));
        const end = text.indexOf("\n", at);
        if (end === -1) {
          open = text.slice(at);
          return;
        }
        kept.push(text.slice(at, end));
        text = text.slice(end + 1);
      }
      if (text !== "") write(text);
    },
    envelopes: () => (open === undefined ? kept : [...kept, open]),
  };
}

function failureOf(envelopes: readonly string[], args: readonly string[]): OsmosisError {
  for (const line of envelopes.toReversed()) {
    const parsed = FailureEnvelope.safeParse(parseJson(line));
    if (!parsed.success) continue;
    const { code, message, hint, details } = parsed.data.error;
    return new OsmosisError(ERROR_CODES.find((known) => known === code) ?? "INTERNAL", message, {
      details,
      ...(hint === undefined ? {} : { hint }),
    });
  }
  return new OsmosisError("INTERNAL", `\`osmosis ${args.join(" ")}\` ended without saying why.`, {
    hint: "Run it by itself, with OSMOSIS_DEBUG=1, to see more.",
  });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
