import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { until } from "./until.ts";

export type Mood = "open" | "html" | "broken" | "silent" | "shut" | "speechless";
export type Door = AsyncDisposable & {
  readonly url: string;
  /** How it answers from now on. */
  mood: Mood;
  /** What no client of a trainer asks for. */
  readonly strange: string[];
};

/** The way to the trainer. While it is open, a trainer that is starting again is waited for. */
export async function startDoor(target: string, mood: Mood = "open"): Promise<Door> {
  const strange: string[] = [];
  const server = createServer((request, response) => {
    const path = request.url ?? "";
    const isKnown =
      /^\/api\/v1\/[a-z_/]+/.test(path) &&
      request.headers["x-api-key"]?.toString().startsWith("tml-") === true;
    if (!isKnown) strange.push(`${request.method} ${path}`);
    request.on("error", () => {});
    if (made.mood === "shut") return void request.socket.destroy();
    if (made.mood === "silent") return void request.resume();
    if (made.mood === "open" || (made.mood === "speechless" && !path.endsWith("/asample")))
      return void pass(request, response, target);
    request.resume();
    if (made.mood === "speechless") return void response.writeHead(400).end("sampling is switched off");
    if (made.mood === "broken") return void response.writeHead(500).end("out of memory");
    response
      .writeHead(200, { "content-type": "text/html" })
      .end("<html><body>Welcome to nginx!</body></html>");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const made: Door = {
    // A server that listens on TCP has an address of this kind.
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    mood,
    strange,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return made;
}

/** Asks until there is an answer: a repeated request of this wire is the same one. */
async function pass(request: IncomingMessage, response: ServerResponse, target: string): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const headers = { ...request.headers };
  delete headers.host;
  const ask = () =>
    new Promise<boolean>((resolve) => {
      const asked = httpRequest(new URL(request.url ?? "/", target), { method: request.method, headers });
      asked.on("error", () => resolve(response.headersSent || response.destroyed));
      asked.on("response", (answer) => {
        if (answer.statusCode === 503) {
          answer.resume();
          return resolve(false);
        }
        response.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.on("error", () => response.destroy()).pipe(response);
        resolve(true);
      });
      asked.end(Buffer.concat(chunks));
    });
  await until("the trainer answers", ask);
}
