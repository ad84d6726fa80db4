import { createAdaptorServer } from "@hono/node-server";
import type { Hono } from "hono";

export type TestServer = AsyncDisposable & { readonly url: string };

/** Serves an app on a free loopback port. */
export async function serveApp(app: Hono): Promise<TestServer> {
  const server = createAdaptorServer({ fetch: app.fetch });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    url: `http://127.0.0.1:${address.port}`,
    async [Symbol.asyncDispose]() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      if ("closeAllConnections" in server) server.closeAllConnections();
      await closed;
    },
  };
}
