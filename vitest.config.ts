import { defineConfig } from "vitest/config";

const packages = ["protocol", "engine", "controller", "sdk", "server", "cli", "web"];

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
      {
        test: {
          name: "end-to-end",
          include: ["tests/end-to-end/**/*.test.ts"],
          testTimeout: 600_000,
          hookTimeout: 600_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
