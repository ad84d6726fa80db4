import { STATUS_CODES, createServer, maxHeaderSize, type Server, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { getRequestListener, type HttpBindings } from "@hono/node-server";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type { ErrorBody } from "./envelope.ts";

/** Answers a request; the second parameter tells whose connection it came on. */
export type Handler = (request: Request, bindings: HttpBindings) => Response | Promise<Response>;

/** A listening server. Closing it lets running requests end for a moment, and then cuts them. */
export interface Listening extends AsyncDisposable {
  readonly port: number;
  /** `http://host:port`; a wildcard address is written as 127.0.0.1. */
  readonly url: string;
}

/** How long a running request may take to end after the server was told to stop. */
const DRAIN_MS = 1500;

/**
 * Listens on an address; port 0 lets the system choose.
 *
 * @throws {OsmosisError} CONFLICT when the port is taken; NETWORK when the address cannot be used.
 */
export async function listen(address: { host: string; port: number }, handler: Handler): Promise<Listening> {
  // Bindings of HTTP/2 are possible in theory; this server speaks HTTP/1.
  const listener = getRequestListener((request, bindings) => handler(request, bindings as HttpBindings), {
    overrideGlobalObjects: false,
  });
  /** The answer that was begun last on each connection. */
  const answers = new WeakMap<Duplex, ServerResponse>();
  const server = createServer((incoming, outgoing) => {
    answers.set(incoming.socket, outgoing);
    // The listener answers failures itself; its promise never rejects.
    void listener(incoming, outgoing);
  });
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const begun = answers.get(socket);
    const isFree = begun === undefined || begun.writableFinished || !begun.headersSent;
    if (socket.writable && isFree) socket.end(refusalOf(error.code), () => socket.destroy());
    else socket.destroy();
  });
  // Uploads and pushes may take as long as they take.
  server.requestTimeout = 0;
  // Longer than clients keep idle connections: whoever closes first must not be the server, in the middle of a request.
  server.keepAliveTimeout = 75_000;
  const port = await start(server, address);
  const host = ["0.0.0.0", "::", ""].includes(address.host) ? "127.0.0.1" : address.host;
  return {
    port,
    url: `http://${host.includes(":") ? `[${host}]` : host}:${port}`,
    async [Symbol.asyncDispose]() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeIdleConnections();
      const cut = setTimeout(() => server.closeAllConnections(), DRAIN_MS);
      await closed;
      clearTimeout(cut);
    },
  };
}

/** What is answered, in the error envelope, to what never becomes a request: Node's own answers have no body. */
function refusalOf(code: string | undefined): string {
  const [status, body] = ((): [number, ErrorBody] => {
    switch (code) {
      case "HPE_HEADER_OVERFLOW":
        return [
          431,
          {
            error: `Address and headers of the request are longer than ${maxHeaderSize / 1024} KiB together.`,
            code: "VALIDATION",
            hint: "Shorten the name or the id that you ask for.",
          },
        ];
      case "ERR_HTTP_REQUEST_TIMEOUT":
        return [408, { error: "The request comes too slowly.", code: "NETWORK" }];
      default:
        return [400, { error: "This is no request of HTTP that can be read.", code: "VALIDATION" }];
    }
  })();
  const text = JSON.stringify(body);
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(text)}`,
    "Connection: close",
  ];
  return `${head.join("\r\n")}\r\n\r\n${text}`;
}

async function start(server: Server, { host, port }: { host: string; port: number }): Promise<number> {
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, host, resolve);
    });
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EADDRINUSE") {
      throw new OsmosisError("CONFLICT", `Port ${port} of ${host} is taken by another program.`, {
        hint: "Stop that program, or choose another port with --port (0 lets the system choose).",
        cause: error,
      });
    }
    throw new OsmosisError("NETWORK", `The server cannot listen on ${host}:${port}: ${errorMessage(error)}`, {
      hint: "Choose an address of this machine with --host, and a port above 1023 with --port.",
      cause: error,
    });
  }
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("The server has no port.");
  return address.port;
}
