import { createServer } from "node:http";
import type { RequestListener, Server } from "node:http";
import { z } from "zod";
import { afterEach, expect, test } from "vitest";
import { createClient } from "./client.ts";
import { route } from "./route.ts";

const servers: Server[] = [];

afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

const thing = route({
  method: "GET",
  path: "/things/{name}",
  access: "public",
  query: z.object({ limit: z.int().optional() }),
  response: z.object({ size: z.int() }),
});

async function clientOf(listener: RequestListener) {
  const server = createServer(listener);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return createClient({ baseUrl: `http://127.0.0.1:${port}/`, fetch });
}

test("a call fills path and query, and answers what the route promises", async () => {
  const asked: (string | undefined)[] = [];
  const client = await clientOf((request, response) => {
    asked.push(request.url);
    response.end(JSON.stringify({ size: 3, more: true }));
  });
  expect(await client.call(thing, { params: { name: "a b/c" }, query: { limit: 2 } })).toEqual({ size: 3 });
  expect(asked).toEqual(["/things/a%20b%2Fc?limit=2"]);
});

test("an empty name, or dots, which would be the address of something else, are refused before anybody is asked", async () => {
  const client = createClient({
    baseUrl: "http://127.0.0.1:9",
    fetch: () => {
      throw new Error("nobody is to be asked");
    },
  });
  const call = (name: string) => client.call(thing, { params: { name }, query: {} });
  await expect(call("")).rejects.toMatchObject({ code: "VALIDATION", message: "The name is empty." });
  for (const dots of [".", ".."]) {
    await expect(call(dots)).rejects.toMatchObject({
      code: "VALIDATION",
      message: `"${dots}" is no name.`,
      hint: "Give a name or an id, as the lists show it.",
    });
  }
});

test("an answer that breaks off in the middle is no answer", async () => {
  const client = await clientOf((_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("{");
    setImmediate(() => response.destroy());
  });
  await expect(client.call(thing, { params: { name: "x" }, query: {} })).rejects.toMatchObject({
    name: "OsmosisError",
    code: "NETWORK",
  });
});

test("an error keeps the server's code and hint, an answer of another shape is the platform's fault", async () => {
  const refusing = await clientOf((_request, response) => {
    response.writeHead(404);
    response.end(JSON.stringify({ error: "No thing x.", code: "CONFLICT", hint: "Make one." }));
  });
  await expect(refusing.call(thing, { params: { name: "x" }, query: {} })).rejects.toMatchObject({
    code: "CONFLICT",
    message: "No thing x.",
    hint: "Make one.",
    details: { status_code: 404 },
  });
  const odd = await clientOf((_request, response) => response.end(JSON.stringify({ size: "big" })));
  await expect(odd.call(thing, { params: { name: "x" }, query: {} })).rejects.toMatchObject({
    code: "PLATFORM_ERROR",
  });
});
