import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createApp } from "../../server/src/app.ts";
import { readConfig } from "../../server/src/config.ts";
import { listen, type Handler } from "../../server/src/http/listen.ts";
import { openPlatform, type Platform } from "../../server/src/platform.ts";
import { chromiumPath, launchBrowser, suiteName } from "./browser.ts";
import { builtDashboard } from "./built-dashboard.ts";

/** A server on a data folder that outlives it. */
async function startServer(
  dataFolder: string,
  port: number,
): Promise<AsyncDisposable & { readonly url: string; readonly port: number; readonly platform: Platform }> {
  await using stack = new AsyncDisposableStack();
  // While the platform opens, it answers as the real one does.
  let handler: Handler = () => new Response("starting", { status: 503 });
  const listening = await listen({ host: "127.0.0.1", port }, (request, bindings) =>
    handler(request, bindings),
  );
  const config = {
    ...readConfig({ dataFolder }, { PATH: process.env["PATH"] }),
    webFolder: await builtDashboard(),
  };
  const { url } = listening;
  const platform = stack.use(
    await openPlatform({ config, url, now: () => new Date(), log: () => undefined }),
  );
  stack.use(listening);
  const app = createApp(platform);
  handler = (request, bindings) => app.fetch(request, bindings);
  const resources = stack.move();
  return { url, port: listening.port, platform, [Symbol.asyncDispose]: () => resources.disposeAsync() };
}

async function addWorkspace({ db, owner }: Platform, name: string): Promise<void> {
  const id = randomUUID();
  await db
    .insertInto("workspaces")
    .values({ id, name, repository: `${name}/workspace`, default_branch: "main" })
    .execute();
  await db.insertInto("memberships").values({ workspace_id: id, user_id: owner.id, role: "owner" }).execute();
}

describe.skipIf(chromiumPath === undefined)(suiteName("an open page"), { timeout: 60_000 }, () => {
  let browser: Browser;
  let folder: string;
  let first: Awaited<ReturnType<typeof startServer>>;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "osmosis-web-"));
    browser = await launchBrowser();
    first = await startServer(folder, 0);
  });
  afterAll(async () => {
    await browser?.close();
    await first?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  test("outlives a restart of the server, and finds what was made meanwhile", async () => {
    const link = await first.platform.accounts.createSignInLink(first.platform.owner.email);
    const page = await browser.newPage();
    const thrown: string[] = [];
    page.on("pageerror", (error) => thrown.push(error.message));
    let loads = 0;
    page.on("load", () => (loads += 1));
    await page.goto(link);
    await page.getByRole("heading", { name: "No workspace yet" }).waitFor();
    await addWorkspace(first.platform, "team");
    await page.getByRole("heading", { name: "team" }).waitFor();
    await page.getByText("No training run yet.").waitFor();

    await first[Symbol.asyncDispose]();
    const note = page.getByText("The platform does not answer.");
    await note.waitFor();
    // What was loaded stays; what is asked for now waits.
    await page.getByText("No training run yet.").waitFor();
    await page.getByRole("link", { name: "Models" }).click();
    await page.getByText("Waiting for the platform…").first().waitFor();

    await using _second = await startServer(folder, first.port);
    await note.waitFor({ state: "detached" });
    await page.getByText("No checkpoint yet").waitFor();
    await page.getByRole("cell", { name: "osmosis/tiny-agent" }).waitFor();
    expect({ thrown, loads }).toEqual({ thrown: [], loads: 1 });
  });
});
