import { randomUUID } from "node:crypto";
import { RolloutOutcome } from "@osmosis/protocol";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { testRollout } from "../../server/src/testing-worker.ts";
import { chromiumPath, suiteName } from "./browser.ts";
import { withStage, type Stage, type WorkerRun } from "./stage.ts";

describe.skipIf(chromiumPath === undefined)(
  suiteName("rollouts in the dashboard"),
  { timeout: 60_000 },
  () => {
    let stage: Stage;
    withStage((opened) => (stage = opened));

    const at = (path: string) => `/${stage.workspace.name}${path}`;

    test("rollouts are listed in pages, by phase, step and outcome, and the address keeps the choice", async () => {
      const { name, run } = await stage.submitTraining();
      await recordSteps(run);
      const page = await stage.open({ path: at(`/training-runs/${name}?tab=rollouts`) });
      const rows = page.getByRole("row");
      await page.getByText("1 to 50 of 61").waitFor();
      expect(await rows.count()).toBe(51);
      await page.getByRole("button", { name: "Next" }).click();
      await page.getByText("51 to 61 of 61").waitFor();
      expect(await rows.count()).toBe(12);
      expect(await page.getByRole("button", { name: "Next" }).isDisabled()).toBe(true);

      await page.getByLabel("Step").fill("2");
      await page.getByRole("row", { name: "row 7, sample 1" }).waitFor();
      await expect.poll(() => rows.count()).toBe(9);
      await page.getByLabel("Phase").selectOption("validation");
      await page.getByText("No rollout is like that.").waitFor();
      await page.getByRole("button", { name: "Show all" }).click();
      await page.getByText("1 to 50 of 61").waitFor();

      await page.getByLabel("Outcome").selectOption("timeout");
      await expect.poll(() => rows.count()).toBe(2);
      expect(await rows.nth(1).innerText()).toContain("The agent took longer than 60 s.");
      await page.getByRole("link", { name: "row 3, sample 0" }).click();
      await page.getByRole("heading", { name: "Row 3, sample 0" }).waitFor();
      expect(await page.getByRole("alert").innerText()).toBe("The agent took longer than 60 s.");
      await page.getByText("none: the agent ran out of time").waitFor();
      await page.getByText("The rollout left no messages.").waitFor();
      await page.goBack();
      await expect.poll(() => page.getByLabel("Outcome").inputValue()).toBe("timeout");
      await expect.poll(() => rows.count()).toBe(2);

      // What ends while the page is open appears.
      await run.record(
        testRollout({ phase: "train", step: 3, row_index: 9, outcome: "timeout", reward: null }),
      );
      await page.getByRole("row", { name: "row 9, sample 0" }).waitFor();
      await page.close();
    });

    test("every outcome of an evaluation can be chosen", async () => {
      const { name, run } = await stage.submitEval();
      await run.record(
        ...RolloutOutcome.options.map((outcome, row_index) =>
          testRollout({
            outcome,
            row_index,
            reward: outcome === "ok" ? 1 : null,
            error: `${outcome} it was`,
          }),
        ),
      );
      await run.finish();
      const page = await stage.open({ path: at(`/eval-runs/${name}?tab=rollouts`) });
      await page.getByText("lost it was").waitFor();
      for (const outcome of RolloutOutcome.options) {
        await page.getByLabel("Outcome").selectOption(outcome);
        await expect.poll(() => page.getByRole("row").count()).toBe(2);
        await page.getByText(`${outcome} it was`).waitFor();
      }
      await page.close();
    });

    test("a rollout is read as a conversation with tool calls, their results, and what it earned", async () => {
      const { name, run } = await stage.submitEval();
      await run.record(
        testRollout({
          row_index: 5,
          reward: 0.25,
          label: "42",
          metrics: { turns: 2, exactness: 0.5 },
          prompt_tokens: 1200,
          completion_tokens: 34,
          model_calls: 2,
          messages: [
            { role: "system", content: "Use the tool." },
            { role: "user", content: [{ type: "text", text: "What is 6 times 7?" }] },
            {
              role: "assistant",
              content: "Let me see.",
              tool_calls: [
                { id: "c1", type: "function", function: { name: "multiply", arguments: '{"a":6.0,"b":7}' } },
              ],
            },
            { role: "tool", tool_call_id: "c1", content: "42" },
            { role: "assistant", content: "#### 42" },
          ],
        }),
      );
      await run.finish();
      const page = await stage.open({ path: at(`/eval-runs/${name}?tab=rollouts`) });
      await page.getByRole("link", { name: "row 5, sample 0" }).click();
      await page.getByRole("heading", { name: "Row 5, sample 0" }).waitFor();
      const turns = page.getByRole("list", { name: "Conversation" }).getByRole("listitem");
      expect((await turns.allInnerTexts()).map((text) => text.split(/\n+/))).toEqual([
        ["system", "Use the tool."],
        ["user", "What is 6 times 7?"],
        ["assistant", "Let me see.", "calls multiply", '{"a":6.0,"b":7}'],
        ["tool result of multiply", "42"],
        ["assistant", "#### 42"],
      ]);
      const facts = await page.locator("dl").innerText();
      expect(facts.replaceAll(/\s+/g, " ")).toBe(
        "Reward 0.25 Model calls 2 Tokens 1,234 1,200 prompt, 34 sampled Time 13 ms turns 2 exactness 0.5",
      );
      await page.getByRole("region", { name: "Label" }).getByText("42").waitFor();
      await page.getByText("As JSON").click();
      await page.getByText('"row_index": 5').waitFor();
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByText("1 of 40 rollouts").waitFor();
      await page.close();
    });

    test("whatever a model, an agent or a grader writes is text, and runs nowhere", async () => {
      const { name, run } = await stage.submitEval();
      const id = randomUUID();
      await run.record(
        testRollout({
          rollout_id: id,
          outcome: "agent",
          reward: null,
          error: `${HOSTILE} error`,
          label: `${HOSTILE} label`,
          metrics: { [`${HOSTILE} metric`]: 1 },
          messages: [
            { role: `${HOSTILE} role`, content: `${HOSTILE} content` },
            {
              role: "assistant",
              tool_calls: [{ id: HOSTILE, function: { name: `${HOSTILE} tool`, arguments: HOSTILE } }],
            },
            { role: "tool", tool_call_id: HOSTILE, content: `${HOSTILE} result` },
            { type: HOSTILE, weird: [null, { deep: HOSTILE }] },
            { role: "user", content: "مرحبا \u202Eevil\u202C שלום \u0000 \uFFFD 👩‍👩‍👧‍👦 z̶̢͚a̸l̷g̷o̶" },
            { role: "user", content: "x".repeat(1_000_000) },
          ],
        }),
      );
      await run.log(`${HOSTILE} log`);
      const page = await stage.open({ path: at(`/eval-runs/${name}?tab=logs`) });
      await page.getByText(`${HOSTILE} log`).waitFor();
      await page.getByRole("tab", { name: "Rollouts" }).click();
      await page.getByText(`${HOSTILE} error`).waitFor();
      await page.getByRole("link", { name: "row 0, sample 0" }).click();
      for (const what of ["error", "label", "metric", "role", "content", "result"]) {
        await page.getByText(`${HOSTILE} ${what}`, { exact: true }).first().waitFor();
      }
      const turns = page.getByRole("list", { name: "Conversation" }).getByRole("listitem");
      await turns.nth(4).getByText("مرحبا").waitFor();
      expect(
        await turns
          .nth(4)
          .locator("pre")
          .evaluate((element) => getComputedStyle(element).direction),
      ).toBe("rtl");
      // A very long message is cut until somebody wants it, and does not make the page wider than the window.
      expect((await turns.nth(5).innerText()).length).toBeLessThan(20_000);
      await turns.nth(5).getByRole("button", { name: "Show all (1.0 MB)" }).click();
      await expect.poll(async () => (await turns.nth(5).innerText()).length).toBeGreaterThan(1_000_000);
      expect(await overflowOf(page)).toBe(0);

      await run.finish("failed", `${HOSTILE} reason`);
      await page.goto(stage.server.url + at(`/eval-runs/${name}`));
      await page.getByText(`${HOSTILE} reason`).waitFor();
      // Neither do addresses.
      for (const path of [
        `/${encodeURIComponent(HOSTILE)}`,
        at(`/eval-runs/${encodeURIComponent(HOSTILE)}`),
      ]) {
        await page.goto(stage.server.url + path);
        await page.getByText(/Nothing here|There is no evaluation run/).waitFor();
      }
      expect(await page.evaluate(() => "executed" in window)).toBe(false);
      expect(await page.locator("img, iframe, body script").count()).toBe(0);
      await page.close();
    });

    test("no page is wider than a phone", async () => {
      const { name, run } = await stage.submitTraining();
      await recordSteps(run);
      await run.commit(1, { metrics: { "rollout/raw_reward": 0.5, "rollout/pass_rate": 0.5 } });
      await run.commit(2, { metrics: { "rollout/raw_reward": 0.6, "rollout/pass_rate": 0.6 } });
      await run.log(`a word of ${"x".repeat(500)}`);
      await run.finish("failed", "y".repeat(500));
      const page = await stage.open();
      await page.setViewportSize({ width: 390, height: 844 });
      const tabs = ["", "?tab=rollouts", "?tab=checkpoints", "?tab=logs", "?tab=configuration"];
      const places = [
        "",
        "/training-runs",
        "/eval-runs",
        "/models",
        "/datasets",
        "/datasets/rows",
        "/secrets",
      ];
      for (const path of [...tabs.map((tab) => `/training-runs/${name}${tab}`), ...places]) {
        await page.goto(stage.server.url + at(path), { waitUntil: "networkidle" });
        await page.locator("main").waitFor();
        expect([path, await overflowOf(page)]).toEqual([path, 0]);
      }
      await page.close();
    });
  },
);

const HOSTILE =
  `"><img src=x onerror="window.executed=1"><script>window.executed=1</script>` +
  `<iframe src="javascript:window.executed=1"></iframe>{{7*7}}\${7*7}`;

/** Two steps of training rollouts, a validation, and one that failed: 61 in all. */
async function recordSteps(run: WorkerRun): Promise<void> {
  const members = (step: number, rows: number, samples: number) =>
    Array.from({ length: rows * samples }, (_, index) =>
      testRollout({
        phase: "train",
        step,
        row_index: step === 2 ? 4 + Math.floor(index / samples) : Math.floor(index / samples),
        sample_index: index % samples,
        reward: index % 2,
      }),
    );
  await run.record(
    ...members(1, 8, 6),
    ...members(2, 4, 2),
    ...[0, 1, 2, 3].map((row_index) => testRollout({ phase: "validation", step: 1, row_index })),
    testRollout({
      phase: "train",
      step: 3,
      row_index: 3,
      outcome: "timeout",
      reward: null,
      error: "The agent took longer than 60 s.",
      messages: [],
    }),
  );
}

/** How many pixels of the page lie beyond its right edge. */
async function overflowOf(page: Page): Promise<number> {
  return await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
}
