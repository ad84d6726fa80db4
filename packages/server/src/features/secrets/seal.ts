import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";

const VERSION = "v1";
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Encrypts values for one purpose. */
export type Seal = {
  /** @param context - where the value belongs; a sealed text that is moved elsewhere does not open. */
  close(value: string, context: string): string;
  /** @throws OsmosisError `STORAGE` when the key or the context is another, or the text was changed. */
  open(sealed: string, context: string): string;
};

/** AES-256-GCM with a fresh nonce for each value. */
export function createSeal(key: Buffer): Seal {
  return {
    close(value, context) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv("aes-256-gcm", key, nonce);
      cipher.setAAD(Buffer.from(context));
      const encrypted = Buffer.concat([cipher.update(value, "utf8"), cipher.final()]);
      return `${VERSION}.${Buffer.concat([nonce, cipher.getAuthTag(), encrypted]).toString("base64")}`;
    },

    open(sealed, context) {
      try {
        const [version, text = ""] = sealed.split(".");
        if (version !== VERSION) throw new Error(`unknown version ${version}`);
        const bytes = Buffer.from(text, "base64");
        const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, NONCE_BYTES));
        decipher.setAAD(Buffer.from(context));
        decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
        const value = decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES));
        return Buffer.concat([value, decipher.final()]).toString("utf8");
      } catch (error) {
        throw new OsmosisError("STORAGE", "A stored secret cannot be decrypted.", {
          hint: "The server's master key is not the one that it was stored with: restore the key, or set the secret again.",
          cause: error,
        });
      }
    },
  };
}
