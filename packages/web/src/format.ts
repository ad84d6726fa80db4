/** `2 h 05 min`, `3 min 12 s`, `4.2 s`, `12 ms`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}

/** `92.5 %`. */
export function formatShare(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

/** Three significant digits, or a dash for nothing. */
export function formatNumber(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 0.001 ? String(Number(value.toPrecision(3))) : value.toExponential(2);
}

/** `just now`, `5 min ago`, `3 h ago`, or the date. */
export function formatAge(iso: string, now: Date): string {
  const seconds = (now.getTime() - new Date(iso).getTime()) / 1000;
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return iso.slice(0, 10);
}
