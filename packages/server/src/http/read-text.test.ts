import { once } from "node:events";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { Hono } from "hono";
import { errorAnswer } from "./envelope.ts";
import { listen } from "./listen.ts";
import { readText, type Pace } from "./read-text.ts";

/** A server that answers with the body that it got. */
async function echo(pace: Pace | null) {
  const app = new Hono();
  app.onError((error, c) => {
    const { status, body } = errorAnswer(error);
    return c.json(body, status);
  });
  app.post("/", async (c) => c.text(await readText(c.req.raw, 1000, pace)));
  return await listen({ host: "127.0.0.1", port: 0 }, (request) => app.fetch(request));
}

const HEAD = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n";

/** All that a server says before it hangs up on somebody who sends a part of a body, and nothing more. */
async function sayHalf(port: number): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  let said = "";
  socket.setEncoding("utf8").on("data", (text) => (said += text));
  socket.write(`${HEAD}half`);
  await once(socket, "close");
  return said;
}

test("whoever sends a body too slowly is answered 408, and hung up on", async () => {
  await using server = await echo({ graceMs: 50, bytesPerSecond: 1000 });
  const said = await sayHalf(server.port);
  expect(said).toContain("HTTP/1.1 408 Request Timeout");
  expect(said).toContain('{"error":"The request body comes too slowly.","code":"NETWORK"}');
});

test("a body that comes in pieces is read whole", async () => {
  for (const pace of [null, { graceMs: 60_000, bytesPerSecond: 1 }]) {
    await using server = await echo(pace);
    const socket = connect(server.port, "127.0.0.1").setEncoding("utf8");
    socket.write(`${HEAD}half`);
    await new Promise((resolve) => setTimeout(resolve, 20));
    socket.write("half");
    const [said] = await once(socket, "data");
    expect(said).toContain("halfhalf");
    socket.destroy();
  }
});
