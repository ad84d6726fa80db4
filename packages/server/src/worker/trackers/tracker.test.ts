import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { z } from "zod";
import { TrackerRefused, ask } from "./tracker.ts";

test("an answer without end is given up while it comes, and its connection closed", async () => {
  const closed = Promise.withResolvers<void>();
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    const more = () => {
      while (response.write(" ".repeat(100_000)));
    };
    response.on("drain", more);
    response.on("close", () => closed.resolve());
    more();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  try {
    const asked = ask(fetch, new URL(`http://127.0.0.1:${port}/graphql`), {
      method: "GET",
      authorization: undefined,
      schema: z.object({}),
      signal: new AbortController().signal,
    });
    await expect(asked).rejects.toThrow(TrackerRefused);
    await expect(asked).rejects.toThrow("/graphql answers with more than 4194304 characters");
    await closed.promise;
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
