import {
  RolloutServerError,
  connectRolloutServer,
  type Clock,
  type RolloutServer,
} from "@osmosis/controller";
import { OsmosisError } from "@osmosis/protocol";
import { startRolloutProcess, type RolloutProcess, type RolloutProcessRequest } from "./rollout-process.ts";

/**
 * The user's rollout server for a whole run. When its process dies, or is silent for too long, the rollouts that it had are
 * lost, and it is started again: one row that brings it down must not cost the run. It dies for good when that happened too
 * often.
 */
export type RolloutService = AsyncDisposable & {
  readonly server: RolloutServer;
  readonly artifactRoot: string;
  /** Resolves when it is not started any more, with the reason; stays open when it was stopped. */
  readonly failed: Promise<OsmosisError>;
};

const MAX_RESTARTS = 3;

/** From one start of the process to its end. */
type Life = {
  readonly process: RolloutProcess;
  readonly client: RolloutServer;
  readonly ended: AbortController;
  readonly rollouts: Set<string>;
};

/** @throws OsmosisError as `startRolloutProcess` does, for the first start. */
export async function openRolloutService(
  request: RolloutProcessRequest & { readonly clock: Clock; readonly warn: (text: string) => void },
): Promise<RolloutService> {
  const failed = Promise.withResolvers<OsmosisError>();
  const taken: Set<string>[] = [];
  let isClosed = false;
  let life = await begin();
  let serving = Promise.resolve(life);

  async function begin(): Promise<Life> {
    const process = await startRolloutProcess(request);
    const client = connectRolloutServer({
      baseUrl: process.url,
      apiKey: process.token,
      fetch: request.fetch,
      clock: request.clock,
    });
    const begun: Life = { process, client, ended: new AbortController(), rollouts: new Set() };
    void process.failed.then((error) => end(begun, error));
    return begun;
  }

  function end({ process, ended, rollouts }: Life, error: OsmosisError): void {
    if (isClosed) return;
    taken.push(rollouts);
    if (taken.length > MAX_RESTARTS) {
      failed.resolve(givenUp(error));
    } else {
      request.warn(
        `${error.message} It is started again (${taken.length} of ${MAX_RESTARTS} times); the rollouts that it had are lost. ${error.hint ?? ""}`,
      );
      serving = beginAgain(process);
      // Whoever waits for it hears of it, too.
      serving.catch((reason: unknown) => {
        if (reason instanceof OsmosisError) failed.resolve(reason);
      });
    }
    ended.abort(new RolloutServerError("unreachable", `The rollout server died: ${error.message}`));
  }

  async function beginAgain(last: RolloutProcess): Promise<Life> {
    // One that is silent still runs.
    await last[Symbol.asyncDispose]();
    life = await begin();
    return life;
  }

  return {
    artifactRoot: life.process.artifactRoot,
    failed: failed.promise,
    server: {
      baseUrl: life.client.baseUrl,
      form: () => life.client.form(),
      health: (signal) => life.client.health(signal),
      admit: (rollout, signal) => life.client.admit(rollout, signal),
      poll: (rolloutId, lease, signal) => life.client.poll(rolloutId, lease, signal),
      cancel: (rolloutId) => life.client.cancel(rolloutId),
      lives: {
        async enter(rolloutId, signal) {
          const { rollouts, ended } = await orAborted(serving, signal);
          rollouts.add(rolloutId);
          return ended.signal;
        },
        hasTaken: (rolloutId) => taken.some((rollouts) => rollouts.has(rolloutId)),
      },
    },
    async [Symbol.asyncDispose]() {
      isClosed = true;
      await serving.catch(() => {});
      await life.process[Symbol.asyncDispose]();
    },
  };
}

function givenUp(error: OsmosisError): OsmosisError {
  return new OsmosisError(
    error.code,
    `${error.message} It had been started again ${MAX_RESTARTS} times before.`,
    error.hint === undefined ? {} : { hint: error.hint },
  );
}

async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const aborted = Promise.withResolvers<never>();
  const abort = () => aborted.reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
