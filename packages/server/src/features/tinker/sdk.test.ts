import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { z } from "zod";
import { startTestServer } from "../../testing.ts";

const run = promisify(execFile);

/** Pythons that have the package `tinker`, each with its own version, separated by colons. */
const pythons = (process.env["OSMOSIS_TEST_TINKER_PYTHON"] ?? "")
  .split(":")
  .filter((path) => existsSync(path));
if (pythons.length === 0) {
  process.stderr.write(
    "The official Tinker SDK is not tested: set OSMOSIS_TEST_TINKER_PYTHON to a Python that has the package tinker.\n",
  );
}

const Report = z.object({
  models: z.array(z.string()),
  info: z.string(),
  losses: z.array(z.number()),
  logprobs: z.number(),
  samples: z.array(z.array(z.number())),
  stops: z.array(z.string()),
  sample_logprobs: z.array(z.number()),
  scored: z.array(z.number().nullable()),
  importance_loss: z.number(),
  paths: z.array(z.string()),
  continued: z.tuple([z.number(), z.number()]),
  named_sample: z.array(z.number()),
  refusal: z.string(),
});

test.skipIf(pythons.length === 0).each(pythons.length === 0 ? ["no Python"] : pythons)(
  "the official SDK of %s, unchanged, creates, trains, samples, saves and loads",
  async (python) => {
    await using server = await startTestServer();
    const { body } = await server.json("POST", "/api/tinker-keys");
    const { api_key } = z.object({ api_key: z.string() }).parse(body);
    const script = join(import.meta.dirname, "../../../fixtures/tinker-session.py");
    const { stdout } = await run(python, [script, "osmosis/tiny-agent"], {
      timeout: 240_000,
      cwd: server.platform.config.dataFolder,
      env: {
        PATH: process.env["PATH"],
        HOME: server.platform.config.dataFolder,
        TINKER_API_KEY: api_key,
        TINKER_BASE_URL: server.url,
      },
    });
    const report = Report.parse(JSON.parse(stdout.trim().split("\n").at(-1) ?? ""));
    const [first = 0] = report.losses;
    expect(report.models).toContain("osmosis/tiny-agent");
    expect(report.info).toBe("osmosis/tiny-agent");
    expect(report.losses.at(-1)).toBeLessThan(first / 2);
    expect(report.logprobs).toBe(7);
    expect(report.samples[0]).toHaveLength(5);
    expect(report.samples[1]).toEqual(report.samples[0]);
    expect(report.stops).toEqual(["length", "length"]);
    expect(report.scored).toHaveLength(8);
    expect(report.scored[0]).toBeNull();
    for (const [index, logprob] of report.sample_logprobs.entries()) {
      expect(report.scored[3 + index]).toBeCloseTo(logprob, 4);
    }
    // The ratio of sampler and trainer is 1 at each of five tokens.
    expect(report.importance_loss).toBeCloseTo(-5, 3);
    expect(report.paths[0]).toMatch(/^tinker:\/\/.+:train:0\/weights\/first$/);
    expect(report.paths[1]).toMatch(/^tinker:\/\/.+:train:0\/sampler_weights\/first$/);
    expect(report.continued[1]).toBeCloseTo(report.continued[0], 5);
    expect(report.named_sample).toEqual(report.samples[0]);
    expect(report.refusal).toContain("There is no loss no_such_loss");
  },
  260_000,
);
