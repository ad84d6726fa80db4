import type { Reporter, SerializedError, TestModule } from "vitest/node";

/**
 * Prints why tests were skipped, and `N passed, N failed, N skipped` as the very last line, for whoever reads the end of a
 * log only.
 */
export default class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    const counts = { passed: 0, failed: errors.length, skipped: 0, pending: 0 };
    const reasons = new Map<string, number>();
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const result = test.result();
        counts[result.state] += 1;
        if (result.state !== "skipped") continue;
        // A test that was skipped from outside has its reason in its name, or in that of its suite.
        const reason = result.note ?? test.fullName;
        reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
      }
      // A file that cannot be loaded holds no tests, yet it has failed.
      if (module.state() === "failed" && counts.failed === 0) counts.failed += 1;
    }
    const skipped = counts.skipped + counts.pending;
    const line = `${counts.passed} passed, ${counts.failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
    const why = [...reasons].map(([reason, count]) => `skipped ${count}: ${reason}\n`).join("");
    process.once("exit", () => process.stdout.write(`${why}${line}\n`));
  }
}
