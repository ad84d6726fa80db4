import type { Context } from "../context.ts";
import type { SilentResult } from "../output/result.ts";
import { credentialStore } from "../platform/session.ts";
import { normalisePlatformUrl } from "../platform/url.ts";

/**
 * A Git credential helper: Git writes `protocol=` and `host=` lines, and gets the login of that platform. It answers
 * nothing for a host without a login, so that Git goes on to its next helper; `store` and `erase` change nothing.
 */
export async function gitCredential(context: Context, operation: string): Promise<SilentResult> {
  if (operation !== "get") return { kind: "silent" };
  const asked = new Map(
    (await context.io.readStdin()).split("\n").map((line): [string, string] => {
      const at = line.indexOf("=");
      return [line.slice(0, at), line.slice(at + 1)];
    }),
  );
  const platformUrl = normalisePlatformUrl(`${asked.get("protocol")}://${asked.get("host")}`);
  const store = credentialStore(context);
  const known = (await store.platforms()).find((url) => new URL(url).origin === platformUrl);
  const login = known === undefined ? undefined : await store.read(known);
  const token = login?.token ?? tokenFromEnvironment(context, platformUrl);
  if (token !== undefined) context.io.stdout.write(`username=osmosis\npassword=${token}\n`);
  return { kind: "silent" };
}

/** Only a token that is bound to this very platform: Git asks on behalf of whatever URL a repository names. */
function tokenFromEnvironment({ env }: Context, platformUrl: string): string | undefined {
  const bound = env["OSMOSIS_TOKEN_PLATFORM_URL"] || env["OSMOSIS_PLATFORM_URL"];
  if (!bound || new URL(normalisePlatformUrl(bound)).origin !== platformUrl) return undefined;
  return env["OSMOSIS_TOKEN"] || undefined;
}
