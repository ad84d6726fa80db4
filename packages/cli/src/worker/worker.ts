import { readFile } from "node:fs/promises";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import { z } from "zod";
import type { WorkerOptions } from "../commands/worker.ts";
import type { Context } from "../context.ts";
import type { SilentResult } from "../output/result.ts";
import { stringifyStrict } from "../output/strict-json.ts";
import { credentialStore, resolvePlatformUrl } from "../platform/session.ts";
import { refuseInsecure } from "../platform/url.ts";
import { startChild } from "../up/child.ts";
import { dataFolder } from "../up/data-folder.ts";
import { prepareDataFolder } from "../up/folder.ts";
import { lineSplitter } from "../up/lines.ts";
import { endingText, supervise } from "../up/supervise.ts";

const GRACE_MS = 16_000;
/** The worker's exit code for a token that the platform does not take. */
const REFUSED = 77;

/** What a worker process prints when the platform has taken its token. */
const Accepted = z.object({ event: z.literal("accepted"), worker: z.string() });

/**
 * Holds a worker process of another platform until Ctrl-C, and starts it again when it dies.
 *
 * @throws OsmosisError `VALIDATION` without a token, `AUTH_REQUIRED` when the platform does not take it.
 */
export async function work(context: Context, options: WorkerOptions): Promise<SilentResult> {
  const { io, style } = context;
  const platformUrl = await resolvePlatformUrl(context, credentialStore(context));
  refuseInsecure(platformUrl, context.env);
  const tokenFile = await tokenFileOf(context, options.tokenFile);
  const folder =
    options.data === undefined
      ? join(dataFolder(context, undefined), "joined-worker")
      : resolve(io.cwd, options.data);
  await prepareDataFolder(folder);
  const args = [
    join(dirname(fileURLToPath(import.meta.resolve("@osmosis/server/main"))), "worker/main.ts"),
    "--supervised",
    "--json",
    "--platform",
    platformUrl,
    "--token-file",
    tokenFile,
    "--data",
    folder,
    ...(options.name === undefined ? [] : ["--name", options.name]),
    ...(options.threads === undefined ? [] : ["--threads", String(options.threads)]),
  ];
  // Neither who the caller is nor anything of a platform on this machine is the business of the code that it runs.
  const { OSMOSIS_TOKEN: _token, DATABASE_URL: _database, OSMOSIS_MASTER_KEY: _key, ...inherited } = io.env;
  const env = { ...inherited, PATH: `${dirname(io.nodePath)}${delimiter}${io.env["PATH"] ?? ""}` };
  context.note(`Connecting to ${platformUrl} …`);
  let isAccepted = false;
  const worker = supervise({
    start: () =>
      startChild({
        command: io.nodePath,
        args,
        env,
        cwd: folder,
        onStdout: lineSplitter((line) => {
          const name = acceptedAs(line);
          if (name === undefined) io.stderr.write(`${line}\n`);
          else sayOnce(name);
        }),
        onStderr: (text) => io.stderr.write(text),
      }),
    now: io.now,
    isFinal: ({ code }) => code === REFUSED,
    onRestart: (ending, pauseMs) => {
      context.warn(
        "PROCESS_RESTARTED",
        `The worker ended (${endingText(ending)}); it starts again in ${pauseMs} ms.`,
      );
    },
  });
  try {
    await Promise.race([
      untilInterrupted(io.interrupted),
      worker.givenUp.then((ending) => fail(ending.code)),
    ]);
  } finally {
    await worker.stop(GRACE_MS);
  }
  io.interrupted.throwIfAborted();
  return { kind: "silent" };

  /** When the platform has taken the token; a worker that starts again says it again. */
  function sayOnce(name: string): void {
    if (isAccepted) return;
    isAccepted = true;
    const message = `Working for ${platformUrl} as ${name}.`;
    if (context.mode === "json") {
      const resource = { platform_url: platformUrl, worker: name, data: folder, pid: io.processId };
      io.stdout.write(
        `${stringifyStrict({ schema_version: 1, status: "success", operation: "worker", resource, message })}\n`,
      );
    } else {
      io.stdout.write(
        `${style.green("✓")} Working for ${style.bold(platformUrl)} as ${name}\n  Data: ${folder}\n  Ctrl-C ends it.\n`,
      );
    }
  }

  function fail(code: number | null): never {
    if (code === REFUSED) {
      throw new OsmosisError("AUTH_REQUIRED", `${platformUrl} does not take the token in ${tokenFile}.`, {
        hint: "Its owner makes one with `osmosis worker token create`; a revoked one does not work any more.",
      });
    }
    throw new OsmosisError("INTERNAL", "The worker dies again and again.", {
      hint: "Its last words are above.",
    });
  }
}

/** The name under which the platform knows the worker, where the line tells it; libraries may print others. */
function acceptedAs(line: string): string | undefined {
  try {
    return Accepted.parse(JSON.parse(line)).worker;
  } catch {
    return undefined;
  }
}

/** @throws OsmosisError `VALIDATION`. */
async function tokenFileOf(context: Context, option: string | undefined): Promise<string> {
  const hint = "`osmosis worker token create --save-to FILE` makes one, at the platform's owner.";
  if (option === undefined) {
    throw new OsmosisError("VALIDATION", "A worker needs a token: --token-file is missing.", { hint });
  }
  const file = resolve(context.io.cwd, option);
  const text = await readFile(file, "utf8").catch((error: unknown) => {
    throw new OsmosisError("VALIDATION", `The token file cannot be read: ${errorMessage(error)}.`, { hint });
  });
  if (/^[\x21-\x7e]+$/.test(text.trim())) return file;
  throw new OsmosisError("VALIDATION", `${file} does not hold a worker token.`, { hint });
}

async function untilInterrupted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((done) => {
    signal.addEventListener("abort", () => done(), { once: true });
  });
}
