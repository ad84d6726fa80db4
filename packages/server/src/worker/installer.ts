import { OsmosisError } from "@osmosis/protocol";
import { startGuarded } from "./guarded-process.ts";

/** Longer than an installation that gets on; one that waits for a server which never answers shall not hold a run for ever. */
const LONGEST_INSTALL_MS = 60 * 60 * 1000;

/** The cause is in what an installer says first. */
const KEPT_LINES = 200;

export type InstallRequest = {
  readonly folder: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly onLine: (line: string) => void;
  readonly signal: AbortSignal;
  readonly timeoutMs?: number;
  /** The name of the worker that installs, for its error. */
  readonly worker?: string;
};

/**
 * Runs an installer to its end.
 *
 * @returns its exit code, and the beginning of what it said.
 * @throws the signal's reason when it aborts, and OsmosisError `VALIDATION` when the installer does not end in time.
 */
export async function runInstaller(
  command: readonly [string, ...string[]],
  { folder, environment, onLine, signal, timeoutMs = LONGEST_INSTALL_MS }: InstallRequest,
): Promise<{ readonly code: number; readonly said: readonly string[] }> {
  const said: string[] = [];
  const timeout = AbortSignal.timeout(timeoutMs);
  await using installer = startGuarded(command, {
    folder,
    environment,
    signal: AbortSignal.any([signal, timeout]),
    onLine: (line) => {
      if (said.length < KEPT_LINES) said.push(line);
      onLine(line);
    },
  });
  const { code } = await installer.ended;
  signal.throwIfAborted();
  if (!timeout.aborted) return { code, said };
  throw new OsmosisError(
    "VALIDATION",
    `\`${command.join(" ")}\` did not end within ${timeoutMs / 60_000} minutes. ${said.slice(-1).join("")}`.trim(),
    { hint: "Does a package registry not answer, or does a package's install script never end?" },
  );
}
