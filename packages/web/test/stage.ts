import { evalRoutes, trainingRoutes, type Job } from "@osmosis/protocol";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { startTestServer, type TestServer } from "../../server/src/testing.ts";
import { createTestWorker } from "../../server/src/testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../../server/src/testing-workspace.ts";
import { launchBrowser } from "./browser.ts";
import { builtDashboard } from "./built-dashboard.ts";

export type WorkerRun = ReturnType<ReturnType<typeof createTestWorker>["run"]> & { readonly job: Job };

type PageOptions = {
  readonly path?: string;
  /** Whose browser it is: by default one that is signed in and that all tests of a suite use, one tab each. */
  readonly profile?: "signed-in" | "own" | "signed-out";
};

/** A real server with the built dashboard and a workspace, and a browser in front of it. */
export interface Stage extends AsyncDisposable {
  readonly server: TestServer;
  readonly workspace: TestWorkspace;
  /** A tab. What it does wrong is kept in `faults`. */
  open(options?: PageOptions): Promise<Page>;
  /** Errors of pages and requests that left the server; empty after every test. */
  readonly faults: string[];
  submitTraining(settings?: Record<string, unknown>): Promise<{ name: string; run: WorkerRun }>;
  submitEval(settings?: Record<string, unknown>): Promise<{ name: string; run: WorkerRun }>;
}

const ROWS = Array.from(
  { length: 40 },
  (_, row) => `{"user_prompt":"${row} times 2?","label":"${row * 2}"}\n`,
);

/** Gives the tests of a suite one stage; whatever a page did wrong fails the test that opened it. */
export function withStage(give: (stage: Stage) => void): void {
  let stage: Stage | undefined;
  beforeAll(async () => {
    stage = await openStage();
    give(stage);
  });
  afterEach(() => expect(stage?.faults.splice(0)).toEqual([]));
  afterAll(() => stage?.[Symbol.asyncDispose]());
}

async function openStage(): Promise<Stage> {
  await using stack = new AsyncDisposableStack();
  const webFolder = await builtDashboard();
  const server = stack.use(await startTestServer({ config: { webFolder } }));
  const workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
  await workspace.upload("rows", ROWS.join(""));
  const browser: Browser = await launchBrowser();
  stack.defer(() => browser.close());
  const faults: string[] = [];

  const newProfile = () => browser.newContext({ viewport: { width: 1280, height: 900 } });
  const signedIn = async (): Promise<BrowserContext> => {
    const context = await newProfile();
    const link = await server.platform.accounts.createSignInLink(server.platform.owner.email);
    await context.request.get(link);
    return context;
  };
  const shared = await signedIn();
  const profiles = { "signed-in": async () => shared, own: signedIn, "signed-out": newProfile };
  const stopped = new AbortController();
  stack.defer(() => stopped.abort());
  const claim = async (id: string): Promise<WorkerRun> => {
    const worker = createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret });
    const job = await worker.claim(20_000);
    if (job?.run_id !== id) throw new Error("the worker got another run, or none");
    const run = worker.run(job);
    // As a worker does, until the run has ended.
    const beat = setInterval(() => void run.heartbeat().catch(() => clearInterval(beat)), 5000);
    stopped.signal.addEventListener("abort", () => clearInterval(beat));
    return { ...run, job };
  };
  const experiment_config = {
    rollout: "multiply",
    entrypoint: "main.ts",
    model_path: "osmosis/tiny-agent",
    dataset: "rows",
  };
  const resources = stack.move();
  return {
    server,
    workspace,
    faults,
    async open({ path = `/${workspace.name}`, profile = "signed-in" } = {}) {
      const page = await (await profiles[profile]()).newPage();
      page.setDefaultTimeout(20_000);
      watch(page, server.url, faults);
      await page.goto(`${server.url}${path}`);
      return page;
    },
    async submitTraining(settings = {}) {
      const { id, name } = await workspace.client.call(trainingRoutes.submit, {
        body: {
          experiment_config,
          training_config: { rollout_batch_size: 4, n_samples_per_prompt: 2 },
          ...settings,
        },
      });
      return { name, run: await claim(id) };
    },
    async submitEval(settings = {}) {
      const { id, name } = await workspace.client.call(evalRoutes.submit, {
        body: { experiment_config, evaluation_config: { limit: 40 }, ...settings },
      });
      return { name, run: await claim(id) };
    },
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  };
}

function watch(page: Page, origin: string, faults: string[]): void {
  page.on("pageerror", (error) => faults.push(`threw: ${error.message}`));
  page.on("dialog", (dialog) => {
    faults.push(`opened a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("console", (message) => {
    // The browser itself reports refused questions, such as who is signed in, as errors.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) {
      faults.push(`logged: ${message.text()}`);
    }
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${origin}/`) && !url.startsWith("data:") && !url.startsWith("blob:")) {
      faults.push(`asked ${url}`);
    }
  });
}
