import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { testRollout } from "../../server/src/testing-worker.ts";
import { chromiumPath, suiteName } from "./browser.ts";
import { withStage, type Stage } from "./stage.ts";

describe.skipIf(chromiumPath === undefined)(
  suiteName("findings and comparisons in the dashboard"),
  { timeout: 60_000 },
  () => {
    let stage: Stage;
    withStage((opened) => (stage = opened));

    const at = (path: string) => `/${stage.workspace.name}${path}`;

    /** A finished run of two steps and a validation of four rows. */
    async function trained(rewards: readonly number[], advanced_config: object = {}): Promise<string> {
      const { name, run } = await stage.submitTraining({
        advanced_config: { holdout_rows: 4, ...advanced_config },
      });
      await run.commit(1, { metrics: { "rollout/raw_reward": 0.25, "rollout/pass_rate": 0.25 } });
      await run.record(
        ...rewards.map((reward, row_index) =>
          testRollout({ phase: "validation", step: 2, row_index, reward }),
        ),
      );
      await run.commit(2, { metrics: { "rollout/raw_reward": 0.5, "rollout/pass_rate": 0.5 } });
      await run.finish();
      return name;
    }

    test("an alarm shows on the run's page with its numbers, and leads to the rollouts", async () => {
      const { name, run } = await stage.submitTraining();
      const failed = testRollout({
        phase: "train",
        step: 1,
        outcome: "agent",
        reward: null,
        error: "Error: boom",
      });
      await run.record(failed);
      await run.commit(1, { metrics: { "rollout/outcome/ok": 40, "rollout/outcome/agent": 10 } });
      const page = await stage.open({ path: at(`/training-runs/${name}`) });
      const findings = page.getByRole("region", { name: "Findings" });
      await findings.getByText("Many rollouts fail").waitFor();
      await findings.getByText("10 of 50 rollouts (20.0 %) have no reward: 10 agent").waitFor();
      await findings.getByRole("link", { name: "agent in step 1" }).click();
      await page.getByText("Error: boom").waitFor();
      await run.finish();
      await page.close();
    });

    test("a newest step without rewards shows neither an older one's gain nor its n, and the run has its metrics", async () => {
      const { name, run } = await stage.submitTraining();
      const ok = {
        "rollout/raw_reward": 0.25,
        "rollout/pass_rate": 0.25,
        "rollout/n": 8,
        "rollout/temperature": 1,
      };
      await run.commit(1, { metrics: ok });
      await run.commit(2, { metrics: { "rollout/n": 0, "rollout/temperature": 1, "rollout/outcome/ok": 0 } });
      await run.finish();
      const page = await stage.open({ path: at(`/training-runs/${name}`) });
      await page.getByText(/^All \d+ metrics$/).waitFor();
      const facts = await page.locator(".facts > div").allInnerTexts();
      expect(facts.map((text) => text.replaceAll("\n", " ")).slice(0, 2)).toEqual([
        "Last step’s reward – mean of the last step",
        "Last step’s pass rate – training rows, 4 prompts × 2, n = 0, T = 1",
      ]);
      // The curve ends at step 1, and says so with the n of step 1.
      await page.getByRole("figure", { name: "Pass rate" }).getByText("n = 8, T = 1").waitFor();
      await page.close();
    });

    test("each chart and each metric says what it is", async () => {
      const name = await trained([1, 0, 0, 0]);
      const page = await stage.open({ path: at(`/training-runs/${name}`) });
      const reward = page.getByRole("figure", { name: "Reward" });
      await reward.getByText("Mean reward of the rewarded rollouts, as the grader gave it.").waitFor();
      await page.getByText(/^All \d+ metrics$/).click();
      await page.getByRole("button", { name: "rollout/pass_rate" }).click();
      await page.getByRole("figure", { name: "rollout/pass_rate" }).locator("canvas").waitFor();
      const downloading = page.waitForEvent("download");
      await page.getByText("rollouts as").getByRole("link", { name: "JSONL" }).click();
      const download = await downloading;
      expect(download.suggestedFilename()).toBe(`${name}-rollouts.jsonl`);
      expect((await readFile(await download.path(), "utf8")).trimEnd().split("\n")).toHaveLength(4);
      await page.close();
    });

    test("runs are laid over each other under an address that can be passed on", async () => {
      const a = await trained([1, 0, 0, 0]);
      const b = await trained([1, 1, 1, 0], { loss: "cispo" });
      const page = await stage.open({ path: at(`/training-runs/${a}`) });
      await page.getByRole("link", { name: "Compare" }).click();
      await page.getByText("Choose two runs or more").waitFor();
      await page.getByLabel("Add").fill(b);
      await page.getByText(`(step 2) on the same 4 rows: pass rate +0.500`).waitFor();
      expect(new URL(page.url()).searchParams.get("runs")).toBe(`${a},${b}`);
      await page.getByRole("row", { name: "loss ppo cispo" }).waitFor();
      const chart = page.getByRole("figure", { name: "rollout/raw_reward" });
      expect(await chart.getByRole("listitem").allInnerTexts()).toEqual([`${a} 0.5`, `${b} 0.5`]);
      await chart.locator("canvas").waitFor();

      await page.reload();
      await page.getByRole("row", { name: "loss ppo cispo" }).waitFor();
      await page.getByRole("button", { name: `Remove ${b}` }).click();
      await page.getByText("Choose two runs or more").waitFor();
      await page.goto(`${stage.server.url}${at(`/compare?runs=${a},nobody`)}`);
      await page.getByText("There is no training run nobody").waitFor();
      await page.close();
    });

    test("an address that names a run twice shows it once, and a narrow screen breaks no name into letters", async () => {
      const a = await trained([1, 0, 0, 0]);
      const b = await trained([1, 1, 1, 0]);
      const page = await stage.open();
      await page.setViewportSize({ width: 390, height: 844 });
      await page.goto(`${stage.server.url}${at(`/compare?runs=${a},${a},${b}`)}`);
      await page.getByText(/^All \d+ curves in numbers$/).click();
      expect(await page.getByRole("button", { name: /^Remove / }).count()).toBe(2);
      const heights = await page
        .locator("td bdi")
        .evaluateAll((names) => names.map((name) => name.getBoundingClientRect().height));
      expect(heights.length).toBeGreaterThan(4);
      // One line each.
      expect(Math.max(...heights)).toBeLessThan(30);
      const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect(beyond).toBeLessThanOrEqual(0);
      await page.close();
    });
  },
);
