import { createServer, type RequestListener, type Server } from "node:http";
import type { ChatChunk } from "@osmosis/protocol";
import { afterEach, describe, expect, test } from "vitest";
import { postChat, streamChat } from "./chat-client.ts";
import { ChatEndpointError } from "./failure.ts";

const servers: Server[] = [];

afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

async function endpoint(listener: RequestListener) {
  const server = createServer(listener);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address ? address.port : 0;
  return { baseUrl: `http://127.0.0.1:${port}`, apiKey: "k" };
}

const reply = {
  id: "x",
  object: "chat.completion",
  created: 1,
  model: "m",
  choices: [{ index: 0, message: { role: "assistant", content: "hi" }, finish_reason: "stop" }],
};
const body = { model: "m", messages: [{ role: "user", content: "hi" }] };
const options = { signal: new AbortController().signal, random: () => 0 };

async function textOf(stream: AsyncIterable<ChatChunk>) {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
  return text;
}

function chunk(content: string): string {
  const delta = { index: 0, delta: { content } };
  return `data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", created: 1, model: "m", choices: [delta] })}\n\n`;
}

describe("a call of a chat endpoint", () => {
  test("is repeated after the time that a busy endpoint asks for", async () => {
    let calls = 0;
    const busy = await endpoint((_request, response) => {
      calls += 1;
      if (calls < 3) response.writeHead(503, { "retry-after": "0.01" }).end("busy");
      else response.end(JSON.stringify(reply));
    });
    expect(await postChat(busy, body, options)).toEqual(reply);
    expect(calls).toBe(3);
  });

  test("is not repeated when the endpoint says that it has tried enough", async () => {
    let calls = 0;
    const spent = await endpoint((_request, response) => {
      calls += 1;
      response.writeHead(503, { "x-should-retry": "false" });
      response.end(
        JSON.stringify({ error: { message: "no GPU", type: "server_error", code: "sampling_failed" } }),
      );
    });
    await expect(postChat(spent, body, options)).rejects.toMatchObject({
      status: 503,
      code: "sampling_failed",
    });
    expect(calls).toBe(1);
  });

  test("is repeated when a kept connection turns out to be closed", async () => {
    const seen = new WeakSet<object>();
    const closing = await endpoint((request, response) => {
      if (seen.has(request.socket)) return void request.socket.destroy();
      seen.add(request.socket);
      response.end(JSON.stringify(reply));
    });
    expect(await postChat(closing, body, options)).toEqual(reply);
    expect(await postChat(closing, body, options)).toEqual(reply);
  });

  test("says what the endpoint said when it is refused", async () => {
    const refusing = await endpoint((_request, response) => {
      response.writeHead(400).end(JSON.stringify({ error: { message: "context too long", type: "x" } }));
    });
    await expect(postChat(refusing, body, options)).rejects.toMatchObject({
      name: "ChatEndpointError",
      status: 400,
      message: `${refusing.baseUrl}/chat/completions answered 400: context too long`,
    });
  });

  test("fails in its own words when nobody listens, the URL is none, or the answer is none", async () => {
    const talking = await endpoint((_request, response) => response.end("<html>"));
    const cases = [
      [{ baseUrl: "http://127.0.0.1:1", apiKey: null }, /cannot be reached: .*ECONNREFUSED/],
      [{ baseUrl: "ftp://x", apiKey: null }, /"ftp:\/\/x" is no http or https URL/],
      [talking, /answered something that is no chat completion: <html>/],
    ] as const;
    for (const [at, message] of cases) {
      const failure = postChat(at, body, options);
      await expect(failure).rejects.toThrow(ChatEndpointError);
      await expect(failure).rejects.toThrow(message);
    }
  });

  test("ends with the signal's reason when it is aborted", async () => {
    const silent = await endpoint(() => {});
    const controller = new AbortController();
    const call = postChat(silent, body, { signal: controller.signal });
    controller.abort(new Error("enough"));
    await expect(call).rejects.toThrow("enough");
  });
});

describe("a streamed answer", () => {
  test("is read across chunk borders, whatever they cut", async () => {
    const text = `: ping\n\n${chunk("é")}${chunk("b")}data: [DONE]\n\n`;
    const slow = await endpoint((_request, response) => {
      const bytes = Buffer.from(text);
      for (let i = 0; i < bytes.length; i += 7) response.write(bytes.subarray(i, i + 7));
      response.end();
    });
    expect(await textOf(streamChat(slow, body, options))).toBe("éb");
  });

  test("that carries an error or breaks off is a failure", async () => {
    const failing = await endpoint((_request, response) => {
      response.end(
        `${chunk("a")}event: error\ndata: {"error":{"message":"died","type":"x","code":"c"}}\n\ndata: [DONE]\n\n`,
      );
    });
    await expect(textOf(streamChat(failing, body, options))).rejects.toMatchObject({
      message: expect.stringContaining("broke off its answer: died"),
      code: "c",
    });
    const short = await endpoint((_request, response) => response.end(chunk("a")));
    await expect(textOf(streamChat(short, body, options))).rejects.toThrow(/without \[DONE\]/);
    const cut = await endpoint((_request, response) => {
      response.write(chunk("a"));
      setImmediate(() => response.destroy());
    });
    await expect(textOf(streamChat(cut, body, options))).rejects.toThrow(ChatEndpointError);
  });
});
