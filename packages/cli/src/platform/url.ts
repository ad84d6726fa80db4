import { OsmosisError } from "@osmosis/protocol";

/** Where `osmosis up` listens unless it is told otherwise. */
export const DEFAULT_PORT = 7400;
export const DEFAULT_PLATFORM_URL = `http://127.0.0.1:${DEFAULT_PORT}`;

/**
 * One spelling for each platform: scheme and host in lower case, no default port, no trailing slash, no query. A path
 * prefix is kept. Credentials are kept under this spelling.
 *
 * @throws OsmosisError `VALIDATION` for what is no http(s) URL.
 */
export function normalisePlatformUrl(text: string): string {
  let url: URL;
  try {
    url = new URL(text.trim());
  } catch {
    throw notAUrl(text);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw notAUrl(text);
  return `${url.protocol}//${url.host}${url.pathname.replace(/\/+$/, "")}`;
}

/**
 * Refuses to send a token in the clear to another machine.
 *
 * @throws OsmosisError `VALIDATION` for http to a host that is not this machine, unless it is allowed explicitly.
 */
export function refuseInsecure(url: string, env: Readonly<Record<string, string | undefined>>): void {
  if (env["OSMOSIS_ALLOW_INSECURE_PLATFORM_URL"] === "1" || isSafe(url)) return;
  throw new OsmosisError("VALIDATION", `${url} would get your token without encryption.`, {
    hint: "Use https, or set OSMOSIS_ALLOW_INSECURE_PLATFORM_URL=1 on a network that you trust.",
  });
}

/** True for https, and for http that stays on this machine. */
export function isSafe(url: string): boolean {
  const { protocol } = new URL(url);
  return protocol === "https:" || isLoopback(url);
}

export function isLoopback(url: string): boolean {
  const { hostname } = new URL(url);
  return hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d+){3}$/.test(hostname);
}

function notAUrl(text: string): OsmosisError {
  return new OsmosisError("VALIDATION", `"${text}" is not a platform URL.`, {
    hint: `A platform URL looks like ${DEFAULT_PLATFORM_URL} or https://osmosis.example.com.`,
  });
}
