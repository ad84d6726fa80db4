/** The only file here that touches the process: clock, environment, output. */
import { homedir } from "node:os";
import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";

/** Milliseconds of a clock that never jumps. */
export function monotonicNow(): number {
  return performance.now();
}

/** Whole seconds since 1970. */
export function wallClockSeconds(): number {
  return Math.floor(Date.now() / 1000);
}

/** Between 0 and 1; spreads retries. */
export function systemRandom(): number {
  return Math.random();
}

/** Calls `listener` for every SIGTERM and SIGINT; returns how to stop that. */
export function onStopSignal(listener: () => void): () => void {
  process.on("SIGTERM", listener);
  process.on("SIGINT", listener);
  return () => {
    process.off("SIGTERM", listener);
    process.off("SIGINT", listener);
  };
}

/**
 * Reports what user code throws where nobody catches it, instead of ending the process: one stray promise must not cost the
 * rollouts beside it.
 */
export function surviveStrayErrors(report: (error: unknown) => void): void {
  // Nobody is left to read what is printed: to report that would print again, without an end.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  process.on("unhandledRejection", report);
  process.on("uncaughtException", report);
}

export function exitProcess(code: number): never {
  process.exit(code);
}

/** That the server listens or stops: no warning, as a platform takes what is written to stderr for. */
export function writeState(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** One event for the person who reads the server's log. */
export function writeLog(text: string): void {
  process.stderr.write(`${text}\n`);
}

export type RolloutServerConfig = {
  readonly host: string;
  readonly port: number;
  /** Bearer that every route but `/health` demands; null demands none. */
  readonly serverToken: string | null;
  readonly instanceId: string | null;
  readonly artifactRoot: string;
};

/**
 * The server's settings from `_OSMOSIS_ROLLOUT_*` variables.
 *
 * @throws OsmosisError `VALIDATION` when the port is none.
 */
export function readServerConfig(
  env: Readonly<Record<string, string | undefined>> = process.env,
): RolloutServerConfig {
  const port = Number(env["_OSMOSIS_ROLLOUT_PORT"] || 8000);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new OsmosisError("VALIDATION", `_OSMOSIS_ROLLOUT_PORT is ${env["_OSMOSIS_ROLLOUT_PORT"]}.`, {
      hint: "It is a port number from 0 (any free port) to 65535.",
    });
  }
  return {
    host: env["_OSMOSIS_ROLLOUT_HOST"] || "127.0.0.1",
    port,
    serverToken: env["_OSMOSIS_ROLLOUT_SERVER_TOKEN"] || null,
    instanceId: env["_OSMOSIS_ROLLOUT_INSTANCE_ID"] || null,
    artifactRoot: env["_OSMOSIS_ROLLOUT_ARTIFACT_ROOT"] || join(homedir(), ".osmosis"),
  };
}
