import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";
import { z } from "zod";

/** AES-256-GCM, each part in base64. */
export const SealedToken = z.object({ iv: z.string(), tag: z.string(), data: z.string() });
export type SealedToken = z.infer<typeof SealedToken>;

/** Encrypts a token for one platform; under another platform's name it cannot be opened. */
export function encryptToken(token: string, key: Buffer, platformUrl: string): SealedToken {
  const iv = randomBytes(12);
  const cipher = createCipheriv("aes-256-gcm", key, iv);
  cipher.setAAD(Buffer.from(platformUrl));
  const data = Buffer.concat([cipher.update(token, "utf8"), cipher.final()]);
  return {
    iv: iv.toString("base64"),
    tag: cipher.getAuthTag().toString("base64"),
    data: data.toString("base64"),
  };
}

/** @throws OsmosisError `AUTH_REQUIRED` when key, platform and text do not belong together. */
export function decryptToken(sealed: SealedToken, key: Buffer, platformUrl: string): string {
  try {
    const decipher = createDecipheriv("aes-256-gcm", key, Buffer.from(sealed.iv, "base64"), {
      authTagLength: 16,
    });
    decipher.setAAD(Buffer.from(platformUrl));
    decipher.setAuthTag(Buffer.from(sealed.tag, "base64"));
    return Buffer.concat([decipher.update(Buffer.from(sealed.data, "base64")), decipher.final()]).toString(
      "utf8",
    );
  } catch (error) {
    throw new OsmosisError("AUTH_REQUIRED", `The saved token for ${platformUrl} cannot be decrypted.`, {
      hint: "Run `osmosis auth login` to sign in again.",
      cause: error,
    });
  }
}
