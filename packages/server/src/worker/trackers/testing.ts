import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TrackedRun, TrackedStep } from "./tracker.ts";

export type Asked = {
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly authorization: string | undefined;
  readonly body: Record<string, unknown>;
};

/** A server that answers by a function, and keeps what it was asked. What the function throws fails the test that looks. */
export async function strictServer(answer: (asked: Asked) => { status?: number; body: unknown }) {
  const asked: Asked[] = [];
  const faults: unknown[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const url = new URL(request.url ?? "/", "http://fake");
      const text = Buffer.concat(chunks).toString();
      const one: Asked = {
        method: request.method ?? "",
        path: url.pathname,
        query: Object.fromEntries(url.searchParams),
        authorization: request.headers.authorization,
        body: text === "" ? {} : (JSON.parse(text) as Record<string, unknown>),
      };
      asked.push(one);
      let result: { status?: number; body: unknown };
      try {
        result = answer(one);
      } catch (error) {
        faults.push(error);
        result = { status: 400, body: { error: String(error) } };
      }
      response.writeHead(result.status ?? 200, { "content-type": "application/json" });
      response.end(JSON.stringify(result.body));
    })();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    asked,
    faults,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

export const testRun: TrackedRun = {
  id: "5f0c7f0e-0000-4000-8000-000000000001",
  name: "brave-otter-7",
  startedAt: 1_900_000_000_000,
  config: { lr: 1e-5, loss: "ppo", reward_range: [0, 1] },
};

/** A step that is committed a second after the one before. */
export function stepOf(
  step: number,
  metrics: Record<string, number> = { "rollout/raw_reward": step / 10 },
): TrackedStep {
  return { step, metrics, committedAt: testRun.startedAt + step * 1000 };
}
