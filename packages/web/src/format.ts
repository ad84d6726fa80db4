/** `2 h 05 min`, `3 min 12 s`, `4.2 s`, `12 ms`. */
export function formatDuration(ms: number): string {
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}

/** A duration that is a guess: without the digits that would change all the time. */
export function formatEstimate(ms: number): string {
  const seconds = Math.max(1, Math.round(ms / 1000));
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** `92.5 %`. */
export function formatShare(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

/** Three significant digits, or a dash for nothing. */
export function formatNumber(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return Math.abs(value) >= 0.001 ? String(Number(value.toPrecision(3))) : value.toExponential(2);
}

/** A number beside an axis, with all the digits that tell it from the next one. */
export function formatTick(value: number): string {
  // What adding up steps of 0.1 leaves is no digit.
  const tick = Number(value.toPrecision(12));
  return tick !== 0 && Math.abs(tick) < 1e-4
    ? tick.toExponential()
    : tick.toLocaleString("en", { maximumFractionDigits: 12 });
}

/** `812 B`, `3.6 MB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const [divisor, unit] =
    bytes < 999_950 ? [1e3, "kB"] : bytes < 999_950_000 ? [1e6, "MB"] : ([1e9, "GB"] as const);
  return `${(bytes / divisor).toFixed(1)} ${unit}`;
}

/** `just now`, `5 min ago`, `3 h ago`, or the date. */
export function formatAge(iso: string, now: Date): string {
  const seconds = (now.getTime() - new Date(iso).getTime()) / 1000;
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return iso.slice(0, 10);
}

/** `n = 200, T = 0 (greedy)`: what a pass rate says nothing without. */
export function formatConditions(n: number | undefined, temperature: number | null | undefined): string {
  const parts: string[] = [];
  if (n !== undefined) parts.push(`n = ${n.toLocaleString("en")}`);
  if (temperature === null) parts.push("the provider's temperature");
  if (typeof temperature === "number") {
    parts.push(temperature === 0 ? "T = 0 (greedy)" : `T = ${formatNumber(temperature)}`);
  }
  return parts.join(", ");
}
