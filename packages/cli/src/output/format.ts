/** Numbers and times as a person reads them. */

export function formatBytes(bytes: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit] ?? ""}`;
}

/** `1h 05m`, `3m 07s`, `4.2s`. */
export function formatDuration(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes === 0) return `${whole}s`;
  if (minutes < 60) return `${minutes}m ${two(whole % 60)}s`;
  return `${Math.floor(minutes / 60)}h ${two(minutes % 60)}m`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

/** A moment in the reader's own time zone, to the second. */
export function formatTime(iso: string | null | undefined): string {
  if (iso === null || iso === undefined) return "–";
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  return (
    `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
  );
}

export function formatNumber(value: number | null | undefined, digits = 3): string {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

/** A number of any size, to three significant digits: `0.0003`, `12,278`. */
export function formatSignificant(value: number): string {
  const size = Math.abs(value);
  if (size >= 1000) return formatCount(Math.round(value));
  if (size >= 0.001 || value === 0) return value.toFixed(3);
  return value.toExponential(2);
}

export function formatCount(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

/** `0.41 (95 % 0.32–0.51, n=100)`. */
export function formatProportion(
  proportion: { value: number; ci_low: number; ci_high: number; n: number } | null | undefined,
): string {
  if (proportion === null || proportion === undefined) return "–";
  const { value, ci_low: low, ci_high: high, n } = proportion;
  return `${value.toFixed(3)} (95 % ${low.toFixed(3)}–${high.toFixed(3)}, n=${n})`;
}
