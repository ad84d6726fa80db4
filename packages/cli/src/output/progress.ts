import type { Sink } from "../io.ts";
import { printable, type Style } from "./style.ts";

/**
 * What goes on, on stderr. On a terminal one line is redrawn; elsewhere a line is written when a tenth is done or 15
 * seconds have passed, so that a log stays readable. `stop` leaves the last state standing.
 */
export type Progress = {
  readonly update: (state: ProgressState) => void;
  readonly stop: (last?: string) => void;
};

export type ProgressState = {
  readonly label: string;
  /** Done and all, or how much of a hundred, for a bar; without it there is only text. */
  readonly done?: number;
  readonly total?: number;
  readonly percent?: number;
  readonly text?: string;
};

const QUIET_MS = 15_000;
const BAR_WIDTH = 24;

export function createProgress(
  stderr: Sink,
  style: Style,
  now: () => number,
  mode: "bar" | "lines" | "silent",
): Progress {
  if (mode === "silent") return { update: () => {}, stop: () => {} };
  let drawn = "";
  let writtenAt = Number.NEGATIVE_INFINITY;
  let tenth = -1;
  if (mode === "lines") {
    return {
      update(state) {
        const nowTenth = shareOf(state) === undefined ? -1 : Math.floor((shareOf(state) ?? 0) * 10);
        const line = printable(lineOf(state));
        if (line === drawn || (nowTenth === tenth && now() - writtenAt < QUIET_MS)) return;
        drawn = line;
        writtenAt = now();
        tenth = nowTenth;
        stderr.write(`${line}\n`);
      },
      stop(last) {
        if (last !== undefined && last !== drawn) stderr.write(`${printable(last)}\n`);
      },
    };
  }
  const clear = "\r\u001b[2K";
  return {
    update(state) {
      const share = shareOf(state);
      const bar = share === undefined ? "" : ` ${drawBar(share, style)}`;
      const counts = countsOf(state);
      const room = stderr.columns() - 1;
      const head = `${state.label}${bar}${counts}`;
      const plainLength = state.label.length + (share === undefined ? 0 : BAR_WIDTH + 1) + counts.length;
      const text = state.text === undefined ? "" : `  ${printable(state.text)}`;
      const line = head + text.slice(0, Math.max(0, room - plainLength));
      if (line === drawn) return;
      drawn = line;
      stderr.write(clear + line);
    },
    stop(last) {
      if (last !== undefined) stderr.write(`${clear}${printable(last)}\n`);
      else if (drawn !== "") stderr.write("\n");
      drawn = "";
    },
  };
}

function shareOf(state: ProgressState): number | undefined {
  if (state.percent !== undefined) return Math.min(1, state.percent / 100);
  if (state.done === undefined || state.total === undefined || state.total <= 0) return undefined;
  return Math.min(1, state.done / state.total);
}

function countsOf(state: ProgressState): string {
  if (shareOf(state) === undefined) return "";
  return state.percent === undefined ? ` ${state.done}/${state.total}` : ` ${state.percent} %`;
}

function lineOf(state: ProgressState): string {
  return `${state.label}${countsOf(state)}${state.text === undefined ? "" : `  ${state.text}`}`;
}

function drawBar(share: number, style: Style): string {
  const full = Math.round(share * BAR_WIDTH);
  return style.green("━".repeat(full)) + style.dim("─".repeat(BAR_WIDTH - full));
}
