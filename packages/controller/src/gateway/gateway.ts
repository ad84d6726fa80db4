import type { ChatCodec, Sampler } from "@osmosis/engine";
import type { Clock } from "../clock.ts";
import type { OpenRollout, OpenRolloutOptions } from "./rollout-session.ts";

/** Who answers: a model whose tokens we sample, or somebody else's endpoint. */
export type GatewayPolicy =
  | {
      readonly type: "local";
      /** Echoed as `model` in answers. */
      readonly name: string;
      readonly sampler: Sampler;
      readonly codec: ChatCodec;
    }
  | {
      readonly type: "provider";
      /** The provider's own name of the model; it replaces what a request names. */
      readonly model: string;
      /** OpenAI-compatible base URL: `/chat/completions` is appended. */
      readonly baseUrl: string;
      readonly apiKey: string;
      readonly fetch: typeof fetch;
    };

export type GatewayOptions = {
  readonly policy: GatewayPolicy;
  readonly clock: Clock;
  /** Seconds since 1970 of an answer's `created` field. */
  readonly created?: () => number;
};

export interface Gateway extends AsyncDisposable {
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /** @throws Error when the id is open already. */
  openRollout(options: OpenRolloutOptions): OpenRollout;
}

/** Opens the OpenAI-compatible endpoint of a run's rollouts on a free loopback port. */
export async function openGateway(options: GatewayOptions): Promise<Gateway> {
  throw new Error(`not yet: ${options.policy.type}`);
}
