import type { Reporter, SerializedError, TestModule } from "vitest/node";

/** Prints `N passed, N failed, N skipped` as the very last line, for whoever reads the end of a log only. */
export default class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    const counts = { passed: 0, failed: errors.length, skipped: 0, pending: 0 };
    for (const module of modules) {
      for (const test of module.children.allTests()) counts[test.result().state] += 1;
      // A file that cannot be loaded holds no tests, yet it has failed.
      if (module.state() === "failed" && counts.failed === 0) counts.failed += 1;
    }
    const skipped = counts.skipped + counts.pending;
    const line = `${counts.passed} passed, ${counts.failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
    process.once("exit", () => process.stdout.write(`${line}\n`));
  }
}
