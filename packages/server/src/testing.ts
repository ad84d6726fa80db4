import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createApp } from "./app.ts";
import { readConfig, type ServerConfig } from "./config.ts";
import type { DatabaseLocation } from "./database/open.ts";
import { memoryDatabase } from "./database/testing.ts";
import { listen, type Handler } from "./http/listen.ts";
import { openPlatform, type Platform } from "./platform.ts";

/** A running server with an empty database, for tests. Closing it stops it and deletes its folder. */
export interface TestServer extends AsyncDisposable {
  readonly url: string;
  readonly platform: Platform;
  /** A bearer token of the owner. */
  readonly ownerToken: string;
  /** Moves the server's clock; the database's own clock stays. */
  advance(milliseconds: number): void;
  /** A request with the owner's token, or with what `headers` say; `json` is sent as the body. */
  request(method: string, path: string, options?: RequestOptions): Promise<Response>;
  /** `request`, with the answer parsed as JSON. */
  json(method: string, path: string, options?: RequestOptions): Promise<{ status: number; body: unknown }>;
}

interface RequestOptions {
  json?: unknown;
  headers?: Record<string, string>;
  /** In place of the owner's; `null` for none. */
  token?: string | null;
}

/** Starts a server on a free port of 127.0.0.1. */
export async function startTestServer(
  options: { database?: DatabaseLocation; config?: Partial<ServerConfig> } = {},
): Promise<TestServer> {
  await using stack = new AsyncDisposableStack();
  const dataFolder = await mkdtemp(join(tmpdir(), "osmosis-server-"));
  stack.defer(() => rm(dataFolder, { recursive: true, force: true }));
  let skewMs = 0;
  let handler: Handler = answerNothing;
  const listening = await listen({ host: "127.0.0.1", port: 0 }, (request, bindings) =>
    handler(request, bindings),
  );
  const { port, url } = listening;
  const config = { ...readConfig({ dataFolder, port }, toolVariables()), ...options.config };
  const platform = stack.use(
    await openPlatform({
      config,
      url,
      now: () => new Date(Date.now() + skewMs),
      log: (entry) => {
        if (entry.level === "error") logged.push(entry);
      },
      database: options.database ?? (await memoryDatabase()),
    }),
  );
  stack.use(listening);
  const app = createApp(platform);
  handler = (request, bindings) => app.fetch(request, bindings);
  const minted = await platform.accounts.tokens.mint({
    userId: platform.owner.id,
    kind: "personal",
    name: "test",
    lifetimeDays: 1,
  });
  const request: TestServer["request"] = (method, path, { json, headers, token = minted.token } = {}) =>
    fetch(new URL(path, url), {
      method,
      redirect: "manual",
      headers: {
        ...(json === undefined ? {} : { "content-type": "application/json" }),
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...headers,
      },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
  const resources = stack.move();
  return {
    url,
    platform,
    ownerToken: minted.token,
    advance(milliseconds) {
      skewMs += milliseconds;
    },
    request,
    async json(method, path, requestOptions) {
      const response = await request(method, path, requestOptions);
      const text = await response.text();
      return { status: response.status, body: text === "" ? undefined : JSON.parse(text) };
    },
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  };
}

/** What servers under test logged as errors: look here when one answers 500. */
export const logged: object[] = [];

/** The environment without what configures a server: a developer's DATABASE_URL must not reach a test. */
function toolVariables() {
  const { DATABASE_URL: _url, OSMOSIS_PUBLIC_URL: _public, OSMOSIS_MASTER_KEY: _key, ...rest } = process.env;
  return rest;
}

function answerNothing(): Response {
  return new Response(null, { status: 503 });
}
