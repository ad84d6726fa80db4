import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryFolder } from "../../test/folder.ts";
import type { Keyring } from "./keyring.ts";
import { openCredentialStore, type Login } from "./store.ts";

const URL_A = "https://a.example.com";

function loginAt(platformUrl: string, token = "secret-token"): Login {
  return {
    platformUrl,
    token,
    tokenId: "t1",
    user: { id: "u1", email: "ada@example.com", name: "Ada" },
    expiresAt: "2030-01-01T00:00:00.000Z",
  };
}

function memoryKeyring(): Keyring & { readonly entries: Map<string, string> } {
  const entries = new Map<string, string>();
  return {
    entries,
    get: (account) => Promise.resolve(entries.get(account)),
    set: (account, secret) => Promise.resolve(entries.set(account, secret).has(account)),
    remove: (account) => Promise.resolve(void entries.delete(account)),
  };
}

test("a login without a keyring is kept encrypted, for its owner only", async () => {
  await using folder = await temporaryFolder();
  const store = openCredentialStore({ folder: folder.path, keyring: undefined, now: Date.now });
  expect(await store.save(loginAt(URL_A))).toBe("file");
  expect(await store.read(URL_A)).toEqual(loginAt(URL_A));
  const path = join(folder.path, "credentials.json");
  expect(await readFile(path, "utf8")).not.toContain("secret-token");
  expect((await stat(path)).mode & 0o777).toBe(0o600);
  expect((await stat(join(folder.path, "credentials.key"))).mode & 0o777).toBe(0o600);
});

test("a login with a keyring leaves no token in the file", async () => {
  await using folder = await temporaryFolder();
  const keyring = memoryKeyring();
  const store = openCredentialStore({ folder: folder.path, keyring, now: Date.now });
  expect(await store.save(loginAt(URL_A))).toBe("keyring");
  expect([...keyring.entries.values()]).toEqual(["secret-token"]);
  expect(await readFile(join(folder.path, "credentials.json"), "utf8")).not.toContain("sealed_token");
  expect(await store.read(URL_A)).toEqual(loginAt(URL_A));
  expect(await store.remove(URL_A)).toBe(true);
  expect(keyring.entries.size).toBe(0);
});

test("logins at several platforms do not touch each other, even at the same time", async () => {
  await using folder = await temporaryFolder();
  const open = () => openCredentialStore({ folder: folder.path, keyring: undefined, now: Date.now });
  const urls = Array.from({ length: 8 }, (_, index) => `https://p${index}.example.com`);
  await Promise.all(urls.map((url) => open().save(loginAt(url, `token for ${url}`))));
  expect((await open().platforms()).toSorted()).toEqual(urls);
  for (const url of urls) expect((await open().read(url))?.token).toBe(`token for ${url}`);
  expect(await open().remove("https://p3.example.com")).toBe(true);
  expect(await open().platforms()).toHaveLength(7);
});

test("a token that was copied under another platform's name does not open", async () => {
  await using folder = await temporaryFolder();
  const store = openCredentialStore({ folder: folder.path, keyring: undefined, now: Date.now });
  await store.save(loginAt(URL_A));
  const path = join(folder.path, "credentials.json");
  await writeFile(path, (await readFile(path, "utf8")).replaceAll("a.example.com", "evil.example.com"));
  await expect(store.read("https://evil.example.com")).rejects.toThrow(/cannot be decrypted/);
});

test("a damaged file is named, and stays", async () => {
  await using folder = await temporaryFolder();
  const path = join(folder.path, "credentials.json");
  await writeFile(path, "{ not json");
  const store = openCredentialStore({ folder: folder.path, keyring: undefined, now: Date.now });
  await expect(store.read(URL_A)).rejects.toThrow(path);
  await expect(store.save(loginAt(URL_A))).rejects.toThrow(path);
  expect(await readFile(path, "utf8")).toBe("{ not json");
});

test("a login that the official command line made is one here, and is encrypted when it is replaced", async () => {
  await using folder = await temporaryFolder();
  const path = join(folder.path, "credentials.json");
  const entry = {
    version: 2,
    access_token: "osm_theirs",
    token_type: "Bearer",
    expires_at: "2030-01-01T00:00:00+00:00",
    created_at: "2026-01-01T00:00:00+00:00",
    user: { id: "u1", email: "ada@example.com", name: "Ada" },
    token_id: "t1",
    platform_url: URL_A,
    token_store: "file",
  };
  await writeFile(path, JSON.stringify({ version: 2, platforms: { [URL_A]: entry } }));
  const store = openCredentialStore({ folder: folder.path, keyring: undefined, now: Date.now });
  expect(await store.read(URL_A)).toMatchObject({ token: "osm_theirs", tokenId: "t1" });
  await store.save(loginAt(URL_A));
  expect(await readFile(path, "utf8")).not.toContain("access_token");
  expect((await store.read(URL_A))?.token).toBe("secret-token");
});
