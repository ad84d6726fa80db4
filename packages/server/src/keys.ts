import { hkdfSync, randomBytes } from "node:crypto";
import { mkdir, open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";

/** Keys for separate purposes from one master key, so that a leak of one tells nothing about the others. */
export interface Keys {
  /** 32 bytes that are always the same for one purpose and one master key. */
  derive(purpose: string): Buffer;
}

/**
 * The keys of this server, from the configured master key or from `<dataFolder>/master-key` (mode 0600), which is made
 * at first use. Whoever holds it can sign in as anybody and read every stored secret.
 *
 * @throws {OsmosisError} VALIDATION for a configured key that is too short.
 */
export async function openKeys(dataFolder: string, configured: string | undefined): Promise<Keys> {
  const master = configured === undefined ? await readOrCreateSecret(dataFolder, "master-key") : configured;
  const bytes = Buffer.from(master, "base64");
  if (bytes.length < 32) {
    throw new OsmosisError("VALIDATION", "The master key is shorter than 32 bytes.", {
      hint: "Make one with `openssl rand -base64 32` and set OSMOSIS_MASTER_KEY.",
    });
  }
  return {
    derive: (purpose) => Buffer.from(hkdfSync("sha256", bytes, "", `osmosis:${purpose}`, 32)),
  };
}

/** The text of a secret file in `folder`; made with 32 random bytes in base64 and mode 0600 when it does not exist. */
export async function readOrCreateSecret(folder: string, name: string): Promise<string> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const path = join(folder, name);
  try {
    const file = await open(path, "wx", 0o600);
    try {
      await file.writeFile(randomBytes(32).toString("base64"));
      await file.sync();
    } finally {
      await file.close();
    }
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
  }
  return (await readFile(path, "utf8")).trim();
}
