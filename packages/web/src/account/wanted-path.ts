import { localPath } from "../search.ts";

const KEY = "osmosis.wanted-path";
/** As long as a sign-in link lives. */
const LIFETIME_MS = 30 * 60 * 1000;

/**
 * Remembers the page that somebody wanted before signing in. The sign-in link opens in another tab, so the note is kept
 * where all tabs of this browser see it.
 */
export function rememberWantedPath(path: string): void {
  storage()?.setItem(KEY, JSON.stringify({ path, until: Date.now() + LIFETIME_MS }));
}

export function forgetWantedPath(): void {
  storage()?.removeItem(KEY);
}

/** The remembered page, while the memory is fresh; never the first page itself. */
export function peekWantedPath(): string | undefined {
  const text = storage()?.getItem(KEY);
  if (text === null || text === undefined) return undefined;
  try {
    const note: unknown = JSON.parse(text);
    if (typeof note !== "object" || note === null || !("path" in note) || !("until" in note))
      return undefined;
    const isFresh = typeof note.until === "number" && note.until > Date.now();
    const path = isFresh && typeof note.path === "string" ? localPath(note.path) : undefined;
    return path === undefined || path === "/" || path.startsWith("/?") ? undefined : path;
  } catch {
    return undefined;
  }
}

/** Browsers may forbid it; then a sign-in leads to the first page. */
function storage(): Storage | undefined {
  try {
    return window.localStorage;
  } catch {
    return undefined;
  }
}
