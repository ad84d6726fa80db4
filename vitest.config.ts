import { defineConfig } from "vitest/config";

const packages = ["protocol", "engine", "controller", "sdk", "server", "cli", "web"];

/** End-to-end tests of leases, silence and patience that end in seconds: each has the machine for itself. */
const faults = [
  "bad-input",
  "bad-trainer",
  "full-disk",
  "lost-workers",
  "many-workers",
  "nothing-is-lost",
].map((name) => `tests/end-to-end/${name}.test.ts`);
const slow = { testTimeout: 600_000, hookTimeout: 600_000 };

/**
 * One project per package, plus the repository's own tests. A project is what `vitest --project <name>` runs.
 * Two workers at most: the machines that run this have two cores, and many tests start real child processes.
 */
export default defineConfig({
  test: {
    maxWorkers: 2,
    reporters: ["default", "./scripts/summary-reporter.ts"],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    projects: [
      ...packages.map((name) => ({
        test: {
          name,
          root: `./packages/${name}`,
          include: ["src/**/*.test.ts", "src/**/*.test.tsx", "test/**/*.test.ts"],
          testTimeout: 30_000,
          hookTimeout: 60_000,
        },
      })),
      { test: { name: "architecture", include: ["tests/architecture.test.ts"] } },
      { test: { name: "end-to-end", include: ["tests/end-to-end/*.test.ts"], exclude: faults, ...slow } },
      { test: { name: "faults", include: faults, fileParallelism: false, ...slow } },
    ],
  },
});
