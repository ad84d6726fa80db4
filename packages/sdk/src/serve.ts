import { OsmosisError, errorMessage } from "@osmosis/protocol";
import { exitProcess, onStopSignal, surviveStrayErrors, writeLog, writeState } from "./io.ts";
import { createRolloutServer, type RolloutServerOptions } from "./rollout-server.ts";

/**
 * What an entrypoint calls: serves rollouts on `_OSMOSIS_ROLLOUT_PORT` until SIGTERM or SIGINT, then lets those under way
 * finish for ten seconds and ends the process; a second signal ends it at once. When it cannot listen, it says why and
 * exits with 1.
 *
 * @example
 * await serveRollout({ backend: new LocalBackend({ workflow: Translate, grader: ExactMatch }) });
 */
export async function serveRollout(options: RolloutServerOptions): Promise<void> {
  const { log = writeLog, log: say = writeState } = options;
  const server = await createRolloutServer(options)
    .listen()
    .catch((error: unknown) => {
      const hint = error instanceof OsmosisError && error.hint !== undefined ? `\n${error.hint}` : "";
      log(`${errorMessage(error)}${hint}`);
      return exitProcess(1);
    });
  const { workflow, grader } = options.backend.health();
  say(`Rollout server on ${server.url}: ${workflow}, ${grader ?? "no grader"}`);
  surviveStrayErrors((error) => {
    const text = error instanceof Error ? (error.stack ?? error.message) : errorMessage(error);
    log(`Something was thrown that no workflow or grader waited for; is an await missing? ${text}`);
  });
  let stopping = false;
  onStopSignal(() => {
    if (stopping) exitProcess(1);
    stopping = true;
    say("Stopping: rollouts under way have ten seconds to finish.");
    void server.close().then(() => exitProcess(0));
  });
}
