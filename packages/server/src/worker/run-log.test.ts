import type { LogEntry } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { openRunLog } from "./run-log.ts";

const at = new Date("2026-01-02T03:04:05.000Z");

async function logged(
  write: (log: ReturnType<typeof openRunLog>) => void,
  secrets: readonly string[] = ["hunter2-hunter2", "hunter2"],
): Promise<LogEntry[]> {
  const sent: LogEntry[] = [];
  const log = openRunLog({
    link: { log: async (entries) => void sent.push(...entries) },
    secrets,
    now: () => at,
    signal: new AbortController().signal,
  });
  write(log);
  await log[Symbol.asyncDispose]();
  return sent;
}

test("a secret is hidden in messages and in details, the longer one whole", async () => {
  const sent = await logged((log) =>
    log.write("info", "rollout", "key=hunter2-hunter2 or hunter2", { key: "hunter2" }),
  );
  expect(sent).toEqual([
    {
      timestamp: at.toISOString(),
      level: "info",
      step: "rollout",
      message: "key=[REDACTED] or [REDACTED]",
      details: { key: "[REDACTED]" },
    },
  ]);
});

test("a secret is hidden however it is escaped, and in each of its lines", async () => {
  const key = "-----BEGIN KEY-----\nAbCdEf0123456789\n-----END KEY-----\n";
  const sent = await logged(
    (log) => {
      log.write("info", "rollout", "it is AbCdEf0123456789");
      log.write("info", "rollout", `as ${JSON.stringify({ said: 'pass"word\\' })}`);
      log.write("info", "rollout", "x", { said: 'pass"word\\', long: "y".repeat(20_000) });
      expect(log.hide({ error: `failed with ${key}`, n: [1, null] })).toEqual({
        error: "failed with [REDACTED]\n",
        n: [1, null],
      });
    },
    [key, 'pass"word\\'],
  );
  expect(sent.map(({ message, details }) => [message, details?.["said"]])).toEqual([
    ["it is [REDACTED]", undefined],
    ['as {"said":"[REDACTED]"}', undefined],
    ["x", "[REDACTED]"],
  ]);
});

test("lines keep their order, and a flood says how many were dropped", async () => {
  const sent = await logged((log) => {
    for (let i = 0; i < 6000; i++) log.write("info", "rollout", `line ${i}`);
  });
  expect(sent.filter(({ step }) => step === "rollout").map(({ message }) => message)).toEqual(
    Array.from({ length: 5000 }, (_, i) => `line ${i}`),
  );
  expect(sent.filter(({ step }) => step === "worker").map(({ message }) => message)).toEqual([
    "1000 lines were dropped: they came faster than they could be kept",
  ]);
});
