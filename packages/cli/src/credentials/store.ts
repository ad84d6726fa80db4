import { createHash, randomBytes } from "node:crypto";
import { chmod, mkdir, open, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { OsmosisError } from "@osmosis/protocol";
import { z } from "zod";
import { decryptToken, encryptToken, SealedToken } from "./encryption.ts";
import type { Keyring } from "./keyring.ts";

/** A sign-in at one platform. */
export type Login = {
  readonly platformUrl: string;
  readonly token: string;
  readonly tokenId: string | undefined;
  readonly user: { readonly id: string; readonly email: string; readonly name?: string | null | undefined };
  /** ISO time; undefined when the platform did not say. */
  readonly expiresAt: string | undefined;
};

const Entry = z.looseObject({
  version: z.literal(2),
  token_type: z.literal("Bearer"),
  platform_url: z.string(),
  user: z.object({ id: z.string(), email: z.string(), name: z.string().nullish() }),
  created_at: z.string(),
  expires_at: z.string().nullish(),
  token_id: z.string().nullish(),
  token_store: z.enum(["keyring", "file"]),
  keyring_account: z.string().nullish(),
  /** The token itself, encrypted, when no keyring keeps it. */
  sealed_token: SealedToken.nullish(),
  /** The token as the official command line writes it, where no keyring keeps it. */
  access_token: z.string().nullish(),
});
type Entry = z.infer<typeof Entry>;

const Document = z.looseObject({ version: z.literal(2), platforms: z.record(z.string(), Entry) });
type Document = z.infer<typeof Document>;

export type CredentialStore = {
  /** The login at the platform; undefined when there is none. */
  read(platformUrl: string): Promise<Login | undefined>;
  /** Platforms with a login, by normalised URL, the newest login first. */
  platforms(): Promise<string[]>;
  /** Where the token went. */
  save(login: Login): Promise<"keyring" | "file">;
  /** True when there was one. */
  remove(platformUrl: string): Promise<boolean>;
};

/**
 * Logins in `<folder>/credentials.json` (mode 0600), one per platform. The token is in the system's keyring where one
 * answers, else in the file, encrypted with the key in `credentials.key` beside it. Only `save` and `remove` change
 * anything: a request that fails never costs a login.
 */
export function openCredentialStore(options: {
  folder: string;
  keyring: Keyring | undefined;
  now: () => number;
}): CredentialStore {
  const { folder, keyring, now } = options;
  const path = join(folder, "credentials.json");
  const keyPath = join(folder, "credentials.key");

  return {
    async read(platformUrl) {
      const entry = (await readDocument(path)).platforms[platformUrl];
      if (entry === undefined) return undefined;
      const token = await tokenOf(entry);
      return {
        platformUrl,
        token,
        tokenId: entry.token_id ?? undefined,
        user: entry.user,
        expiresAt: entry.expires_at ?? undefined,
      };
    },
    async platforms() {
      const entries = Object.entries((await readDocument(path)).platforms);
      return entries.toSorted(([, a], [, b]) => b.created_at.localeCompare(a.created_at)).map(([url]) => url);
    },
    async save(login) {
      const account = accountOf(login);
      const inKeyring = (await keyring?.set(account, login.token)) === true;
      const key = inKeyring ? undefined : await readOrCreateKey(folder, keyPath);
      const entry: Entry = {
        version: 2,
        token_type: "Bearer",
        platform_url: login.platformUrl,
        user: login.user,
        created_at: new Date(now()).toISOString(),
        expires_at: login.expiresAt ?? null,
        token_id: login.tokenId ?? null,
        token_store: inKeyring ? "keyring" : "file",
        ...(key === undefined
          ? { keyring_account: account }
          : { sealed_token: encryptToken(login.token, key, login.platformUrl) }),
      };
      const replaced = await change((document) => {
        const before = document.platforms[login.platformUrl];
        document.platforms[login.platformUrl] = entry;
        return before;
      });
      if (replaced?.keyring_account && replaced.keyring_account !== account) {
        await keyring?.remove(replaced.keyring_account);
      }
      return entry.token_store;
    },
    async remove(platformUrl) {
      const removed = await change((document) => {
        const before = document.platforms[platformUrl];
        delete document.platforms[platformUrl];
        return before;
      });
      if (removed?.keyring_account) await keyring?.remove(removed.keyring_account);
      return removed !== undefined;
    },
  };

  async function tokenOf(entry: Entry): Promise<string> {
    if (entry.sealed_token) {
      return decryptToken(entry.sealed_token, await readKey(keyPath), entry.platform_url);
    }
    const token = entry.keyring_account ? await keyring?.get(entry.keyring_account) : entry.access_token;
    if (token) return token;
    throw new OsmosisError("AUTH_REQUIRED", `The keyring did not give the token for ${entry.platform_url}.`, {
      hint: "Unlock the keyring, or run `osmosis auth login` to sign in again.",
    });
  }

  /** Reads, changes and writes the document while no other process does. */
  async function change<T>(edit: (document: Document) => T): Promise<T> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await using _lock = await lockFile(`${path}.lock`, now);
    const document = await readDocument(path);
    const result = edit(document);
    await replaceFile(path, `${JSON.stringify(document, null, 2)}\n`);
    return result;
  }
}

async function readDocument(path: string): Promise<Document> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (isCode(error, "ENOENT")) return { version: 2, platforms: {} };
    throw error;
  }
  try {
    return Document.parse(JSON.parse(text));
  } catch (error) {
    throw new OsmosisError("VALIDATION", `${path} is not a credentials file of this version.`, {
      hint: `Move it away (\`mv ${path} ${path}.bak\`) and run \`osmosis auth login\`.`,
      cause: error,
    });
  }
}

function accountOf(login: Login): string {
  const token = login.tokenId === undefined ? randomBytes(12).toString("hex") : short(login.tokenId);
  return `platform:${short(login.platformUrl)}:${token}`;
}

function short(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 24);
}

async function readOrCreateKey(folder: string, path: string): Promise<Buffer> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  try {
    const file = await open(path, "wx", 0o600);
    try {
      await file.writeFile(randomBytes(32));
      await file.sync();
    } finally {
      await file.close();
    }
  } catch (error) {
    if (!isCode(error, "EEXIST")) throw error;
  }
  return await readKey(path);
}

async function readKey(path: string): Promise<Buffer> {
  const key = await readFile(path).catch(() => Buffer.alloc(0));
  if (key.length === 32) return key;
  throw new OsmosisError(
    "AUTH_REQUIRED",
    `The key that opens the saved tokens is missing or damaged: ${path}.`,
    {
      hint: "Run `osmosis auth logout` and `osmosis auth login` to sign in again.",
    },
  );
}

/** Writes beside the file and renames: a reader sees the old text or the new one, never half of it. */
async function replaceFile(path: string, text: string): Promise<void> {
  const temporary = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  try {
    const file = await open(temporary, "wx", 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
    await chmod(path, 0o600);
  } finally {
    await rm(temporary, { force: true });
  }
}

const LOCK_STALE_MS = 10_000;

/** A lock file that a crashed process left behind is taken over after ten seconds. */
async function lockFile(path: string, now: () => number): Promise<AsyncDisposable> {
  for (;;) {
    try {
      await (await open(path, "wx", 0o600)).close();
      return { [Symbol.asyncDispose]: () => rm(path, { force: true }) };
    } catch (error) {
      if (!isCode(error, "EEXIST")) throw error;
    }
    const since = await stat(path).then(
      (found) => found.mtimeMs,
      () => now(),
    );
    if (now() - since > LOCK_STALE_MS) await rm(path, { force: true });
    else await delay(25);
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
