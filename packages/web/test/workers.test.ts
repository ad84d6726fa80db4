import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createTestWorker } from "../../server/src/testing-worker.ts";
import { until } from "../../server/src/testing-workspace.ts";
import { chromiumPath, suiteName } from "./browser.ts";
import { withStage, type Stage } from "./stage.ts";

describe.skipIf(chromiumPath === undefined)(
  suiteName("workers in the dashboard"),
  { timeout: 60_000 },
  () => {
    let stage: Stage;
    withStage((opened) => (stage = opened));

    const worker = (name: string) =>
      createTestWorker({ url: stage.server.url, workerSecret: stage.server.platform.workerSecret }, name);

    /** As if it had not been heard of for five minutes and a half. */
    const fallSilent = (name: string) =>
      stage.server.platform.db
        .updateTable("workers")
        .set({ last_seen_at: new Date(Date.now() - 330_000) })
        .where("name", "=", name)
        .execute();

    test("nobody there says how one joins, and who joins appears by itself", async () => {
      const page = await stage.open();
      await page.getByRole("link", { name: "Workers" }).click();
      await page.getByText("No worker was here in the last day").waitFor();
      await page.getByText(`osmosis worker --platform ${stage.server.url} --token-file lab.token`).waitFor();
      await worker("lab-1").claim(0);
      const row = page.getByRole("row", { name: /^lab-1/ });
      await row.waitFor();
      expect(await row.getByRole("cell").allInnerTexts()).toMatchObject([
        expect.stringMatching(/^lab-1\s+started just now$/),
        "idle",
        "–",
        "just now",
      ]);
      await page.getByText("Let another one join").click();
      await page.getByText("osmosis worker token create --name lab").waitFor();
      await page.close();
    });

    test("each says what it does now, with a way to the run, and one that fell silent says so", async () => {
      const { name, run } = await stage.submitTraining({ advanced_config: { rollout_workers: 2 } });
      await run.commit(1);
      const helper = worker("lab-2");
      await helper.claim(0);
      const tasks = [1, 2, 3].map((row_index) => ({ rollout_id: randomUUID(), row_index, options: {} }));
      await run.publish({ share_id: randomUUID(), phase: "train", step: 2, tasks });
      const share = await helper.claimShare();
      if (share === null) throw new Error("no share came");
      // As a worker does, while it holds the share.
      const beat = setInterval(() => void helper.share(share).heartbeat(), 5000);
      const page = await stage.open({ path: "/workers" });
      const holder = page.getByRole("row", { name: `training ${name}` });
      await holder.waitFor();
      expect(await holder.innerText()).toMatch(
        new RegExp(`working\\s+training ${name}\\s+1 step done, in ${stage.workspace.name}`),
      );
      expect(await page.getByRole("row", { name: /^lab-2/ }).innerText()).toMatch(
        new RegExp(`working\\s+3 rollouts of ${name}\\s+step 2, in ${stage.workspace.name}`),
      );
      clearInterval(beat);
      await worker("lab-3").claim(0);
      await page.getByRole("row", { name: /^lab-3.*idle/ }).waitFor();
      await fallSilent("lab-3");
      await page.getByRole("row", { name: /^lab-3.*silent.*5 min ago/ }).waitFor();

      await holder.getByRole("link", { name }).click();
      await page.getByRole("heading", { name }).waitFor();
      await run.finish();
      await page.close();
    });

    test("a narrow screen shows everything without a way to the side, in light and in dark", async () => {
      await worker(`a-machine-with-a-name-that-is-much-longer-than-others-${"x".repeat(40)}`).claim(0);
      await worker("a-machine-that-left").claim(0);
      const { name, run } = await stage.submitEval();
      await fallSilent("a-machine-that-left");
      const page = await stage.open({ path: "/workers" });
      await page.setViewportSize({ width: 390, height: 844 });
      await page.getByRole("row", { name: /^a-machine-that.*silent/ }).waitFor();
      await page.getByRole("row", { name: `evaluation ${name}` }).waitFor();
      const papers = new Set<string>();
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(beyond).toBeLessThanOrEqual(0);
        // What is written stands out from what it is written on.
        for (const state of ["idle", "silent"]) {
          const text = page.getByText(state, { exact: true }).first();
          expect(await text.evaluate(contrast)).toBeGreaterThan(4.5);
        }
        papers.add(await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor));
      }
      expect(papers.size).toBe(2);
      await run.finish();
      await page.close();
    });

    test("whoever does not own the platform sees no way there, and is told whom to ask", async () => {
      const { accounts, owner } = stage.server.platform;
      await stage.server.json("POST", `/api/workspaces/${stage.workspace.name}/members`, {
        json: { email: "eve@example.com" },
      });
      const page = await stage.open({ profile: "signed-out", path: "/sign-in" });
      await page.goto(await accounts.createSignInLink("eve@example.com"));
      await page.getByRole("heading", { name: stage.workspace.name }).waitFor();
      await page.getByText("eve@example.com").waitFor();
      expect(await page.getByRole("link", { name: "Workers" }).count()).toBe(0);
      await page.goto(`${stage.server.url}/workers`);
      await page.getByRole("alert").getByText("Only the owner of the platform").waitFor();
      await until(async () => (await page.getByRole("alert").innerText()).includes(owner.email));
      await page.context().close();
    });
  },
);

/** The ratio of contrast of a text and the page, as WCAG 2 defines it. */
function contrast(element: Element): number {
  const light = (colour: string): number => {
    const [red = 0, green = 0, blue = 0] = (colour.match(/[\d.]+/g) ?? []).map((part) => {
      const share = Number(part) / 255;
      return share <= 0.039_28 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const of = (one: Element, name: "color" | "backgroundColor"): number => light(getComputedStyle(one)[name]);
  const [ink, paper] = [of(element, "color"), of(document.documentElement, "backgroundColor")];
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}
