import type { Readable } from "node:stream";
import {
  DatasetRow,
  RUN_LEASE_HEADER,
  fillPath,
  shareRoutes,
  shareStreams,
  sharingRoutes,
  type Client,
  type LogEntry,
  type RolloutRecord,
} from "@osmosis/protocol";
import type { z } from "zod";
import { leased, linesOf, patiently } from "./platform-call.ts";
import type { PlatformLink } from "./platform-link.ts";

type Body<Name extends keyof typeof sharingRoutes> = z.input<
  NonNullable<(typeof sharingRoutes)[Name]["body"]>
>;

/** What the holder of a run says about its shares. */
export type SharingLink = {
  /** Names the files that were uploaded under `weights/<version>/` the newest. */
  publishWeights(weights: Body<"weights">, signal: AbortSignal): Promise<void>;
  publishShares(shares: Body<"publish">["shares"], signal: AbortSignal): Promise<void>;
  /** The rollouts of the share that are left to do; null while somebody works on it. */
  withdrawShare(shareId: string, signal: AbortSignal): Promise<readonly string[] | null>;
  collectShared(
    query: Body<"collect">,
    signal: AbortSignal,
  ): Promise<{ readonly after: number; readonly rollouts: readonly RolloutRecord[]; readonly open: number }>;
};

/** A line to one share, in the name of its lease; calls are repeated, and `LeaseLost` is thrown, as of a run's. */
export type ShareLink = {
  heartbeat(signal: AbortSignal): Promise<{ stop_requested: boolean }>;
  record(rollouts: readonly RolloutRecord[], signal: AbortSignal): Promise<void>;
  giveBack(reason: string, signal: AbortSignal): Promise<void>;
  log(entries: readonly LogEntry[], signal: AbortSignal): Promise<void>;
  rows(signal: AbortSignal): Promise<DatasetRow[]>;
  source(use: (archive: Readable) => Promise<void>, signal: AbortSignal): Promise<void>;
};

export function openSharingLink(parts: {
  readonly client: Client;
  readonly params: { readonly run_id: string };
  readonly headers: Record<string, string>;
  readonly again: <Result>(signal: AbortSignal, call: () => Promise<Result>) => Promise<Result>;
}): SharingLink {
  const { client, params, headers, again } = parts;
  return {
    async publishWeights(body, signal) {
      await again(signal, () => client.call(sharingRoutes.weights, { params, headers, body, signal }));
    },
    async publishShares(shares, signal) {
      await again(signal, () =>
        client.call(sharingRoutes.publish, { params, headers, body: { shares }, signal }),
      );
    },
    async withdrawShare(shareId, signal) {
      const answer = await again(signal, () =>
        client.call(sharingRoutes.withdraw, { params, headers, body: { share_id: shareId }, signal }),
      );
      return answer.rollout_ids;
    },
    collectShared: (body, signal) =>
      again(signal, () =>
        client.call(sharingRoutes.collect, {
          params,
          headers,
          body,
          signal,
          timeoutMs: body.wait_ms + 30_000,
        }),
      ),
  };
}

export function openShareLink(parts: {
  readonly client: Client;
  readonly read: PlatformLink["read"];
  readonly shareId: string;
  readonly leaseToken: string;
  readonly patienceMs: number;
}): ShareLink {
  const { client, read, leaseToken, patienceMs } = parts;
  const params = { share_id: parts.shareId };
  const headers = { [RUN_LEASE_HEADER]: leaseToken };
  const again = <Result>(signal: AbortSignal, call: () => Promise<Result>): Promise<Result> =>
    leased(patiently({ signal, patienceMs }, call));
  return {
    async heartbeat(signal) {
      await again(signal, () =>
        client.call(shareRoutes.heartbeat, { params, headers, body: {}, signal, timeoutMs: 5000 }),
      );
      return { stop_requested: false };
    },
    async record(rollouts, signal) {
      const body = { rollouts: [...rollouts] };
      await again(signal, () => client.call(shareRoutes.record, { params, headers, body, signal }));
    },
    async giveBack(reason, signal) {
      await again(signal, () =>
        client.call(shareRoutes.giveBack, { params, headers, body: { reason }, signal }),
      );
    },
    async log(entries, signal) {
      const body = { entries: [...entries] };
      await again(signal, () => client.call(shareRoutes.log, { params, headers, body, signal }));
    },
    rows: (signal) =>
      leased(
        read(
          fillPath(shareStreams.rows, params),
          async (body) => {
            const rows = [];
            for await (const line of linesOf(body)) rows.push(DatasetRow.parse(JSON.parse(line)));
            return rows;
          },
          { leaseToken, signal },
        ),
      ),
    source: (use, signal) => leased(read(fillPath(shareStreams.source, params), use, { leaseToken, signal })),
  };
}
