import type { AsyncEntry } from "@napi-rs/keyring";

/** The system's keyring. Each call answers within the time box, or as if there were no keyring. */
export type Keyring = {
  get(account: string): Promise<string | undefined>;
  /** False when nothing was kept. */
  set(account: string, secret: string): Promise<boolean>;
  remove(account: string): Promise<void>;
};

const SERVICE = "osmosis-cli";
/** A keyring daemon that is locked or half dead may never answer. */
const TIME_BOX_MS = 2000;

/**
 * The keyring of this desktop; undefined where there is none. On Linux it is the Secret Service or nothing: the
 * kernel's own keyring forgets at the next boot.
 */
export function openKeyring(options: {
  operatingSystem: string;
  env: Readonly<Record<string, string | undefined>>;
}): Keyring | undefined {
  const { operatingSystem, env } = options;
  if (env["OSMOSIS_CREDENTIAL_STORE"] === "file") return undefined;
  if (env["CI"]) return undefined;
  if (operatingSystem === "linux" && !env["DBUS_SESSION_BUS_ADDRESS"]) return undefined;

  return {
    get: (account) =>
      within(account, async (entry, signal) => (await entry.getPassword(signal)) ?? undefined, undefined),
    set: (account, secret) =>
      within(
        account,
        async (entry, signal) => {
          await entry.setPassword(secret, signal);
          return true;
        },
        false,
      ),
    remove: (account) =>
      within(
        account,
        async (entry, signal) => {
          await entry.deletePassword(signal);
        },
        undefined,
      ),
  };
}

/** What the keyring says within the time box, `otherwise` in every other case. */
async function within<T>(
  account: string,
  ask: (entry: AsyncEntry, signal: AbortSignal) => Promise<T>,
  otherwise: T,
): Promise<T> {
  const signal = AbortSignal.timeout(TIME_BOX_MS);
  const tooLate = new Promise<T>((resolve) => {
    signal.addEventListener("abort", () => resolve(otherwise), { once: true });
  });
  try {
    const keyring = await import("@napi-rs/keyring");
    const entry = new keyring.AsyncEntry(SERVICE, account, { linux: { store: "secret-service" } });
    return await Promise.race([ask(entry, signal), tooLate]);
  } catch {
    // No native module for this system, no daemon, locked: all the same to the caller.
    return otherwise;
  }
}
