import { createServer, request as connect, type IncomingHttpHeaders } from "node:http";
import { once } from "node:events";
import { RUN_LEASE_HEADER } from "@osmosis/protocol";

/** A request of a worker, and what the server answered to it. */
type Relayed = {
  readonly method: string;
  readonly path: string;
  /** The lease that it was made under. */
  readonly lease: string | undefined;
  /** When it was passed on to the server. */
  readonly at: number;
  readonly status: number;
  readonly text: string;
};

export type HeldRequest = {
  readonly path: string;
  readonly lease: string;
  /** Passes it on, late, whether or not its sender still waits for the answer. */
  readonly release: () => Promise<Relayed>;
};

/** The network between workers and a platform: it notes every answer, and can hold a request on its way. */
export type Relay = AsyncDisposable & {
  readonly url: string;
  /** Holds the next request that fits, with everything that it says. */
  readonly holdNext: (fits: (request: { method: string; path: string }) => boolean) => Promise<HeldRequest>;
  /** All that was answered. */
  readonly relayed: readonly Relayed[];
};

type Incoming = {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
};

export async function startRelay(target: string): Promise<Relay> {
  const relayed: Relayed[] = [];
  let holding: { fits: (request: Incoming) => boolean; held: (request: HeldRequest) => void } | undefined;

  /** Asks the server, and hands over its answer as it comes. */
  async function pass(
    { method, path, headers, body }: Incoming,
    sender: {
      signal?: AbortSignal;
      answer: (status: number, headers: IncomingHttpHeaders) => void;
      write: (chunk: Buffer) => void;
    },
  ): Promise<Relayed> {
    const at = Date.now();
    const outgoing = connect(new URL(path, target), {
      method,
      headers: { ...headers, host: new URL(target).host, "content-length": String(body.length) },
      ...(sender.signal === undefined ? {} : { signal: sender.signal }),
    });
    outgoing.end(body);
    const [response] = (await once(outgoing, "response")) as [import("node:http").IncomingMessage];
    const status = response.statusCode ?? 0;
    sender.answer(status, response.headers);
    const said: Buffer[] = [];
    for await (const chunk of response as AsyncIterable<Buffer>) {
      sender.write(chunk);
      if (status >= 400) said.push(chunk);
    }
    const lease = headers[RUN_LEASE_HEADER.toLowerCase()];
    const one = {
      method,
      path,
      lease: typeof lease === "string" ? lease : undefined,
      at,
      status,
      text: Buffer.concat(said).toString(),
    };
    relayed.push(one);
    return one;
  }

  const server = createServer((incoming, outgoing) => {
    const gone = new AbortController();
    outgoing.on("close", () => gone.abort());
    outgoing.on("error", () => {});
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk);
      const { "transfer-encoding": _chunked, connection: _connection, ...headers } = incoming.headers;
      const request: Incoming = {
        method: incoming.method ?? "GET",
        path: incoming.url ?? "/",
        headers,
        body: Buffer.concat(chunks),
      };
      const sender = {
        answer: (status: number, answered: IncomingHttpHeaders) => void outgoing.writeHead(status, answered),
        write: (chunk: Buffer) => void outgoing.write(chunk),
      };
      const hold = holding;
      if (hold?.fits(request) === true) {
        holding = undefined;
        const lease = headers[RUN_LEASE_HEADER.toLowerCase()];
        hold.held({
          path: request.path,
          lease: typeof lease === "string" ? lease : "",
          async release() {
            const one = await pass(request, sender);
            outgoing.end();
            return one;
          },
        });
        return;
      }
      await pass(request, { ...sender, signal: gone.signal });
      outgoing.end();
    })().catch(() => outgoing.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    url: `http://127.0.0.1:${address.port}`,
    relayed,
    holdNext(fits) {
      const { promise, resolve } = Promise.withResolvers<HeldRequest>();
      holding = { fits, held: resolve };
      return promise;
    },
    async [Symbol.asyncDispose]() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
