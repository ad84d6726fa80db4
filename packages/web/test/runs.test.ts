import { evalRoutes, trainingRoutes } from "@osmosis/protocol";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { jsonb } from "../../server/src/database/columns.ts";
import { testRollout } from "../../server/src/testing-worker.ts";
import { until } from "../../server/src/testing-workspace.ts";
import { chromiumPath, suiteName } from "./browser.ts";
import { withStage, type Stage, type WorkerRun } from "./stage.ts";

describe.skipIf(chromiumPath === undefined)(suiteName("runs in the dashboard"), { timeout: 60_000 }, () => {
  let stage: Stage;
  withStage((opened) => (stage = opened));

  const at = (path: string) => `/${stage.workspace.name}${path}`;

  test("what is not there yet says how to make it", async () => {
    const page = await stage.open();
    await page.getByText("osmosis train submit configs/training/multiply-local-openai.toml").waitFor();
    await page.getByText("osmosis eval submit configs/eval/multiply-local-openai.toml").waitFor();
    for (const [link, text] of [
      ["Training", "No training run yet."],
      ["Evaluation", "No evaluation run yet."],
      ["Models", "No checkpoint yet"],
      ["Secrets", "osmosis secret set OPENAI_API_KEY"],
    ] as const) {
      await page.getByRole("navigation").getByRole("link", { name: link, exact: true }).click();
      await page.getByText(text).waitFor();
    }
    await page.close();
  });

  test("the curves of a training run grow while the page is open", async () => {
    const { name, run } = await stage.submitTraining();
    const page = await stage.open();
    await page.getByRole("link", { name }).click();
    await page.getByText("The curves begin with the first step.").waitFor();
    let loads = 0;
    page.on("load", () => (loads += 1));

    await run.commit(1, { metrics: metricsOf(1, 0.25), examples: 8 });
    const reward = chart(page, "Reward");
    await reward.getByText("training 0.25 n = 8, T = 1").waitFor();
    expect(await chart(page, "Pass rate").getByRole("listitem").allInnerTexts()).toEqual([
      "training 25.0 % n = 8, T = 1",
    ]);
    await page.getByText(/^step 1 of 10, about \d+ (s|min) left$/).waitFor();
    const before = await drawnIn(page, "Reward");

    await run.commit(2, {
      metrics: {
        ...metricsOf(2, 0.75),
        "eval/validation/reward": 0.9,
        "eval/validation/pass_rate": 0.875,
        "eval/validation/n": 16,
        "eval/validation/temperature": 0,
      },
      examples: 8,
    });
    await reward.getByText("training 0.75").waitFor();
    expect(await chart(page, "Pass rate").getByRole("listitem").allInnerTexts()).toEqual([
      "training 75.0 % n = 8, T = 1",
      "validation 87.5 % n = 16, T = 0 (greedy)",
    ]);
    await page.getByText(/^step 2 of 10, about/).waitFor();
    expect(await page.getByRole("progressbar", { name: "Steps" }).getAttribute("value")).toBe("2");
    expect(await fact(page, "Last step’s reward")).toBe("0.75 +0.5 since step 1 (0.25)");
    expect(await fact(page, "Last step’s pass rate")).toBe(
      "75.0 % training rows, 4 prompts × 2, n = 8, T = 1",
    );
    expect(await fact(page, "Validation pass rate")).toBe(
      "87.5 % n = 16, T = 0 (greedy), 95 % interval 64.0 to 96.5 %, after step 2",
    );
    expect(await fact(page, "Validation reward")).toBe("0.9 mean of the held-out rows after step 2");
    expect(await fact(page, "Rollouts")).toContain("16");
    await until(async () => (await drawnIn(page, "Reward")) !== before);

    // What a pointer is at is told in the legend.
    await chart(page, "Reward")
      .locator(".u-over")
      .hover({ position: { x: 3, y: 20 } });
    await reward.getByText("step 1").waitFor();
    await reward.getByText("training 0.25").waitFor();

    await run.finish();
    await page.getByText("finished", { exact: true }).waitFor();
    expect(await page.getByRole("button", { name: "Stop" }).count()).toBe(0);
    expect(loads).toBe(0);

    // The list knows the same, and the address is the one that the platform hands out.
    const { training_run } = await stage.workspace.client.call(trainingRoutes.get, { params: { name } });
    expect(page.url()).toBe(training_run.platform_url);
    await page.getByRole("link", { name: "Overview" }).click();
    // For a moment the list shows what it knew when it was left.
    const row = page.getByRole("row", { name: new RegExp(`^${name}.*finished`) });
    await row.waitFor();
    expect(await row.getByRole("cell").allInnerTexts()).toMatchObject([
      expect.stringContaining("osmosis/tiny-agent, rollout multiply, data set rows"),
      "finished",
      "2/10",
      expect.stringMatching(/^87\.5 %\s*reward 0\.9, n = 16, T = 0 \(greedy\)$/),
      "0.75",
      expect.stringContaining("just now"),
    ]);
    await page.close();
  });

  test("a page from before an update of the dashboard says how to see its curves", async () => {
    const { name, run } = await stage.submitTraining();
    await run.commit(1, { metrics: metricsOf(1, 0.5) });
    await run.finish();
    const page = await stage.open();
    await page.route("**/assets/plot-*.js", (route) => route.fulfill({ status: 404 }));
    await page.getByRole("link", { name }).click();
    await chart(page, "Reward").getByText("training 0.5").waitFor();
    await page.unroute("**/assets/plot-*.js");
    await chart(page, "Reward").getByRole("button", { name: "load it again" }).click();
    await chart(page, "Reward").locator("canvas").waitFor();
    await page.close();
  });

  test("checkpoints appear while the run goes on, and each is a model with files", async () => {
    const { name, run } = await stage.submitTraining();
    const page = await stage.open({ path: at(`/training-runs/${name}?tab=checkpoints`) });
    await page.getByText("No checkpoint yet.").waitFor();
    await run.put("checkpoints/1/weights.safetensors", "some weights");
    await run.commit(1, { metrics: metricsOf(1, 0.5) });
    await run.checkpoint(1, { files: ["weights.safetensors"], reward: 0.5 });
    await page.getByRole("link", { name: `${name}-step-1` }).click();
    await page.getByRole("heading", { name: `${name}-step-1` }).waitFor();
    expect(await fact(page, "Method")).toBe("LoRA adapter");
    await page.getByText(`model_path = "${name}-step-1"`).waitFor();
    const downloading = page.waitForEvent("download");
    await page.getByRole("link", { name: "weights.safetensors" }).click();
    const download = await downloading;
    expect(download.suggestedFilename()).toBe("weights.safetensors");
    await run.finish("failed", "The worker said why.\nOn two lines.");
    await page.getByRole("link", { name, exact: true }).click();
    expect(await page.getByRole("alert").innerText()).toBe("The worker said why.\nOn two lines.");
    await page.close();
  });

  test("a base model tells how large it is, or that it has no weights here", async () => {
    await stage.server.platform.db
      .insertInto("base_models")
      .values({
        id: "weightless",
        name: "lab/large",
        parameters: 0,
        files: jsonb([{ name: "config.json", key: "c", size_bytes: 1, sha256: "0", modified_ms: 0 }]),
        imported_by: null,
        is_available: true,
      })
      .execute();
    const page = await stage.open({ path: at("/models") });
    const row = (name: string) => page.getByRole("row", { name }).getByRole("cell").last().innerText();
    await page.getByText("lab/large").waitFor();
    expect(await row("lab/large")).toBe("no weights here");
    expect(await row("osmosis/tiny-agent")).toBe("908,288");
    await page.close();
  });

  test("the log follows the run, and its beginning can be read", async () => {
    const { name, run } = await stage.submitTraining();
    const page = await stage.open({ path: at(`/training-runs/${name}?tab=logs`) });
    // The platform itself logs who took the run.
    await page.getByText("1 line, new ones appear by themselves").waitFor();
    for (let part = 0; part < 3; part += 1) {
      await run.log(...Array.from({ length: 100 }, (_, line) => `line ${part * 100 + line + 1}.`));
    }
    const log = page.getByRole("log");
    await log.getByText("line 300.").waitFor();
    expect(await isScrolledToEnd(page)).toBe(true);
    await run.log("one more");
    await log.getByText("one more").waitFor();
    await until(() => isScrolledToEnd(page));
    await page.getByText("302 lines, new ones appear by themselves").waitFor();

    await page.reload();
    await page.getByText("201 lines").waitFor();
    expect(await log.getByText("line 1.", { exact: true }).count()).toBe(0);
    await page.getByRole("button", { name: "Show earlier lines" }).click();
    await log.getByText("line 1.", { exact: true }).waitFor();
    expect(await log.getByRole("listitem").count()).toBe(302);
    expect(await log.getByRole("listitem").nth(100).innerText()).toContain("line 100.");
    await run.log("the last word");
    await run.finish();
    await log.getByText("the last word").waitFor();
    await page.getByText("303 lines", { exact: true }).waitFor();
    await page.close();
  });

  test("a run is stopped only after it was asked for twice", async () => {
    const { name, run } = await stage.submitTraining();
    const page = await stage.open({ path: at(`/training-runs/${name}`) });
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("alertdialog").waitFor();
    await page.getByRole("button", { name: "Let it run" }).click();
    expect(await run.heartbeat()).toEqual({ stop_requested: false });

    await page.getByRole("button", { name: "Stop" }).press("Enter");
    await page.getByRole("button", { name: "Stop the run" }).click();
    await page.getByText("stopping…").waitFor();
    expect(await run.heartbeat()).toEqual({ stop_requested: true });
    await run.finish("stopped");
    await page.getByText("stopped", { exact: true }).waitFor();
    await page.close();
  });

  test("an evaluation tells its pass rate with n, temperature and interval, and how rollouts ended", async () => {
    const { name, run } = await stage.submitEval({
      evaluation_config: { limit: 4, n: 2 },
      advanced_config: { temperature: 0.7 },
    });
    const page = await stage.open({ path: at(`/eval-runs/${name}`) });
    await page.getByText("0 of 8 rollouts").waitFor();
    expect(await fact(page, "Pass rate")).toContain("– no rollout that counts yet");
    await record(run);
    await page.getByText(/^5 of 8 rollouts, about/).waitFor();
    expect(await fact(page, "Pass rate")).toMatch(
      /^60\.0 % n = 5, T = 0\.7 95 % interval [\d.]+ to [\d.]+ % a pass is a reward of 1 or more$/,
    );
    expect(await fact(page, "Mean reward")).toMatch(/^0\.75 over 4 graded 95 % interval/);
    await page.getByText("In 1 of 4 graded rollouts the model answered no call").waitFor();
    expect(await page.getByRole("row", { name: "turns" }).innerText()).toMatch(/turns\s+1\s+n = 4/);
    expect(await page.getByRole("row", { name: "agent" }).innerText()).toMatch(/agent\s+1\s+20\.0 %\s+show/);
    await page.getByRole("row", { name: "agent" }).getByRole("link", { name: "show" }).click();
    await page.getByText("Error: boom").waitFor();
    expect(await page.getByRole("row").count()).toBe(2);

    await run.finish();
    await page.getByText("finished", { exact: true }).waitFor();
    const { eval_run } = await stage.workspace.client.call(evalRoutes.get, { params: { name } });
    await page.goto(eval_run.platform_url);
    await page.getByText("5 of 8 rollouts", { exact: true }).waitFor();
    await page.getByRole("tab", { name: "Configuration" }).click();
    await page.getByRole("row", { name: "temperature 0.7" }).waitFor();
    await page.getByRole("heading", { name: "[evaluation]" }).waitFor();
    expect(await page.getByRole("row", { name: "commit" }).innerText()).toMatch(/[0-9a-f]{40}/);

    await page.goto(stage.server.url + at("/eval-runs"));
    await page.getByRole("row", { name }).waitFor();
    const cells = await page.getByRole("row", { name }).getByRole("cell").allInnerTexts();
    expect(cells.map((text) => text.replaceAll(/\s+/g, " "))).toMatchObject([
      expect.anything(),
      "finished",
      "60.0 % n = 5, T = 0.7",
      "0.75",
      expect.anything(),
    ]);
    await page.close();
  });

  test("parts of a run are reached by the keyboard, and kept by the address", async () => {
    const { name, run } = await stage.submitTraining();
    await run.finish();
    const page = await stage.open({ path: at(`/training-runs/${name}`) });
    await page.getByRole("tab", { name: "Overview" }).focus();
    await page.keyboard.press("ArrowRight");
    await page.getByText("The run has no rollouts.").waitFor();
    expect(new URL(page.url()).search).toBe("?tab=rollouts");
    await page.keyboard.press("End");
    await page.getByRole("heading", { name: "[training]" }).waitFor();
    await page.goBack();
    await page.getByText("The run has no rollouts.").waitFor();
    await page.close();
  });

  test("a data set shows its first rows and can be downloaded", async () => {
    const page = await stage.open({ path: at("/datasets") });
    await page.getByRole("link", { name: "rows" }).click();
    await page.getByRole("cell", { name: "19 times 2?" }).waitFor();
    expect(await fact(page, "Rows")).toBe("40");
    const downloading = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download" }).click();
    expect((await downloading).suggestedFilename()).toBe("rows.jsonl");
    await page.close();
  });
});

function metricsOf(step: number, share: number): Record<string, number> {
  return {
    "rollout/raw_reward": share,
    "rollout/pass_rate": share,
    "rollout/n": 8,
    "rollout/temperature": 1,
    "train/entropy_loss": 1 / step,
  };
}

async function record(run: WorkerRun): Promise<void> {
  const graded = [1, 1, 1, 0].map((reward, row_index) =>
    testRollout({ reward, row_index, model_calls: reward }),
  );
  const failed = testRollout({ outcome: "agent", reward: null, error: "Error: boom", sample_index: 1 });
  await run.record(...graded, failed);
}

function chart(page: Page, title: string) {
  return page.getByRole("figure", { name: title });
}

/** The pixels of a chart, once it is drawn. */
async function drawnIn(page: Page, title: string): Promise<string> {
  const canvas = chart(page, title).locator("canvas");
  await canvas.waitFor();
  return await canvas.evaluate((element) => (element as HTMLCanvasElement).toDataURL());
}

/** A fact's value and remark on one line. */
async function fact(page: Page, name: string): Promise<string> {
  const term = page.getByRole("term").filter({ hasText: new RegExp(`^${name}$`) });
  const text = await term.locator("xpath=following-sibling::dd").innerText();
  return text.replaceAll(/\s+/g, " ").trim();
}

async function isScrolledToEnd(page: Page): Promise<boolean> {
  return await page
    .getByRole("log")
    .evaluate(({ scrollTop, clientHeight, scrollHeight }) => scrollTop + clientHeight >= scrollHeight - 8);
}
