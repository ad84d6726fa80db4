import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { scriptedModel, UnconsumedModelCallsError, UnexpectedModelCallError } from "./testing.ts";
import { SDK_VERSION } from "./version.ts";

async function ask(url: string, content = "hi") {
  const body = { model: "m", messages: [{ role: "user", content }] };
  const response = await fetch(`${url}/chat/completions`, { method: "POST", body: JSON.stringify(body) });
  return { status: response.status, body: (await response.json()) as unknown };
}

describe("a scripted model", () => {
  test("answers in order and is done when all was asked", async () => {
    await using model = await scriptedModel([{ say: "one" }, { call: { name: "f", arguments: { a: 1 } } }]);
    expect(await ask(model.url)).toMatchObject({
      status: 200,
      body: { choices: [{ message: { content: "one" } }] },
    });
    expect(await ask(model.url)).toMatchObject({
      body: {
        choices: [
          { finish_reason: "tool_calls", message: { tool_calls: [{ function: { arguments: '{"a":1}' } }] } },
        ],
      },
    });
    model.assertDone();
  });

  test("refuses a call beyond its script", async () => {
    await using model = await scriptedModel([]);
    expect((await ask(model.url, "too much")).status).toBe(400);
    expect(() => model.assertDone()).toThrow(UnexpectedModelCallError);
    expect(() => model.assertDone()).toThrow(
      /Model call 1 came, but the script has 0\. It asked: .*too much/,
    );
  });

  test("refuses a call that is not the expected one", async () => {
    await using model = await scriptedModel([
      { say: "x", expect: (request) => expect(request.messages[0]?.content).toBe("other") },
    ]);
    expect((await ask(model.url)).status).toBe(400);
    expect(() => model.assertDone()).toThrow(/Model call 1 is not what the script expects/);
  });

  test("complains about calls that never came", async () => {
    await using model = await scriptedModel([{ say: "one" }, { say: "two" }]);
    await ask(model.url);
    expect(() => model.assertDone()).toThrow(UnconsumedModelCallsError);
    expect(() => model.assertDone()).toThrow("The script has 2 model calls, but only 1 came.");
  });
});

test("the version in trajectories is the package's", async () => {
  const manifest: unknown = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf8"));
  expect(manifest).toMatchObject({ version: SDK_VERSION });
});
