import { randomUUID } from "node:crypto";
import { LogQuery, type LogEntry } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestServer, type TestServer } from "../../testing.ts";
import { appendLog, readLog } from "./store.ts";

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
}, 60_000);
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
});

const line = (level: LogEntry["level"], step: string, message: string): LogEntry => ({
  timestamp: "2030-01-01T00:00:00.000Z",
  level,
  step,
  message,
});

test("a page holds the lines of a level and above, and of a source, however many others are between them", async () => {
  const { db } = server.platform;
  const id = randomUUID();
  const chatter = Array.from({ length: 60 }, (_, index) => line("info", "rollout", `INFO said ${index}`));
  await appendLog(db, id, [
    line("info", "prepare", "ready"),
    line("info", "step 1", "one"),
    ...chatter,
    line("warning", "rollout", "odd"),
    line("info", "step 2", "two"),
    line("error", "step 12", "twelve"),
    line("info", "stepwise", "no step"),
    ...chatter,
  ]);
  const read = async (query: object) => {
    const { logs, next_cursor } = await readLog(db, id, LogQuery.parse(query));
    return { said: logs.map(({ message }) => message), next_cursor };
  };
  expect((await read({ source: "step" })).said).toEqual(["one", "two", "twelve"]);
  expect((await read({ source: "step 1" })).said).toEqual(["one"]);
  expect((await read({ level: "warning" })).said).toEqual(["odd", "twelve"]);
  expect((await read({ level: "warning", source: "rollout" })).said).toEqual(["odd"]);
  expect((await read({ level: "debug", limit: 200 })).said).toHaveLength(126);
  expect(await read({ source: "%" })).toEqual({ said: [], next_cursor: null });
  // Pages go on among the same lines.
  const newest = await read({ source: "step", limit: 2 });
  expect(newest.said).toEqual(["two", "twelve"]);
  expect((await read({ source: "step", limit: 2, cursor: newest.next_cursor })).said).toEqual(["one"]);
  const first = await read({ source: "step", direction: "newer", limit: 1 });
  expect(first.said).toEqual(["one"]);
  const rest = await read({ source: "step", direction: "newer", cursor: first.next_cursor });
  expect(rest.said).toEqual(["two", "twelve"]);
});
