import { OsmosisError, errorMessage } from "@osmosis/protocol";
import { Hono } from "hono";
import manifest from "../package.json" with { type: "json" };
import { blobRoutes } from "./blobs/routes.ts";
import { refusedValue } from "./database/refused-value.ts";
import { fullStorage } from "./database/storage-problem.ts";
import { accountRoutes } from "./features/accounts/routes.ts";
import { datasetRoutes } from "./features/datasets/routes.ts";
import { modelRoutes } from "./features/models/routes.ts";
import { replayRoutes } from "./features/replays/routes.ts";
import { runAnalysisRoutes } from "./features/run-analysis/routes.ts";
import { runRoutes } from "./features/runs/routes.ts";
import { sharesRoutes } from "./features/shares/routes.ts";
import { workersRoutes } from "./features/workers/routes.ts";
import { secretRoutes } from "./features/secrets/routes.ts";
import { tinkerRoutes } from "./features/tinker/routes.ts";
import { workerApiRoutes } from "./features/worker-api/routes.ts";
import { workspaceRoutes } from "./features/workspaces/routes.ts";
import type { AppEnv } from "./http/context.ts";
import { gitRoutes } from "./git/smart-http.ts";
import { dashboardRoutes } from "./http/dashboard.ts";
import { errorAnswer } from "./http/envelope.ts";
import { unknownRoute } from "./http/not-offered.ts";
import type { Platform } from "./platform.ts";

/** The routes of every feature. A feature adds its factory here. Paths are absolute, so the order does not matter. */
const FEATURES: readonly ((platform: Platform) => Hono<AppEnv>)[] = [
  accountRoutes,
  workspaceRoutes,
  datasetRoutes,
  secretRoutes,
  modelRoutes,
  runRoutes,
  runAnalysisRoutes,
  replayRoutes,
  workerApiRoutes,
  sharesRoutes,
  workersRoutes,
  tinkerRoutes,
];

/** When whoever did too much at once may try again, where the refusal does not say it: its own work has to end first. */
const RETRY_AFTER_SECONDS = 5;

/** The whole HTTP interface on an open platform. */
export function createApp(platform: Platform): Hono {
  const app = new Hono();

  app.onError((error, c) => {
    const { status, body, isBug } = errorAnswer(
      refusedValue(error) ?? fullStorage(error, platform.config.dataFolder) ?? error,
    );
    // Whoever hangs up in the middle gets no answer, and is no fault of ours.
    if (isBug && !c.req.raw.signal.aborted) {
      platform.log({
        level: "error",
        message: `${c.req.method} ${new URL(c.req.url).pathname} failed: ${errorMessage(error)}`,
        stack: error.stack,
      });
    }
    if (status === 429) {
      const told = body["retry_after_seconds"];
      c.header("Retry-After", `${typeof told === "number" ? told : RETRY_AFTER_SECONDS}`);
    }
    return c.json(body, status);
  });
  app.notFound((c) => c.json(unknownRoute(c.req.method, new URL(c.req.url).pathname), 404));

  app.use(async (c, next) => {
    if (/%00/.test(c.req.url)) {
      throw new OsmosisError("VALIDATION", "The address of the request holds a NUL character.", {
        hint: "Remove %00 from it.",
      });
    }
    await next();
  });

  app.get("/api/health", (c) => c.json({ status: "ok" }));
  app.get("/api/version", (c) => c.json({ version: manifest.version }));

  for (const routes of FEATURES) app.route("/", routes(platform));
  app.route("/", blobRoutes(platform));
  app.route("/", gitRoutes(platform));
  app.route("/", dashboardRoutes(platform.config.webFolder));
  return app;
}
