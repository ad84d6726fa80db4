import type { Clock } from "../clock.ts";

export type RolloutServerOptions = {
  /** `http://127.0.0.1:8000`, without a path. */
  readonly baseUrl: string;
  /** Bearer that the server demands on its routes. */
  readonly apiKey?: string;
  readonly fetch: typeof fetch;
  readonly clock: Clock;
};

/** A rollout server as its driver sees it. */
export type RolloutServer = {
  readonly baseUrl: string;
};

/** The client of a rollout server; it opens nothing until it is used. */
export function connectRolloutServer(options: RolloutServerOptions): RolloutServer {
  return { baseUrl: options.baseUrl };
}
