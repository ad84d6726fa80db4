import { expect, test } from "vitest";
import { createProgress, type ProgressState } from "./progress.ts";
import { createStyle } from "./style.ts";

/** What a log holds after these states, ten seconds apart. */
function logOf(states: readonly ProgressState[]): string {
  let written = "";
  let time = 0;
  const stderr = { isTerminal: false, columns: () => 80, write: (text: string) => void (written += text) };
  const progress = createProgress(stderr, createStyle(false, {}), () => time, "lines");
  for (const state of states) {
    progress.update(state);
    time += 10_000;
  }
  progress.stop();
  return written;
}

test("bytes stand as a share of a hundred, things that are counted with their number", () => {
  expect(logOf([{ label: "Uploading rows", percent: 41, text: "410 B of 1 KB" }])).toBe(
    "Uploading rows 41 %  410 B of 1 KB\n",
  );
  expect(logOf([{ label: "Exporting rollouts", done: 3, total: 40 }])).toBe("Exporting rollouts 3/40\n");
  expect(logOf([{ label: "Replay", text: "waiting" }])).toBe("Replay  waiting\n");
});

test("a log gets a line when a tenth is done or 15 seconds have passed", () => {
  const percents = [0, 1, 2, 12, 13];
  expect(logOf(percents.map((percent) => ({ label: "Sending", percent })))).toBe(
    "Sending 0 %\nSending 2 %\nSending 12 %\n",
  );
});
