import { createHmac, timingSafeEqual } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";
import { checkBlobKey } from "./blob-key.ts";

/** What a signed URL permits: one method on one blob, for a while. */
export interface BlobGrant {
  method: "GET" | "PUT";
  key: string;
  /** For PUT: the longest body. */
  maxBytes?: number;
  /** For GET: the name that a browser saves the file under. */
  fileName?: string;
}

/** URLs of this server that carry their own permission: who holds one needs no token. */
export interface SignedUrls {
  /** Seconds that a URL is good for that is given no other time. */
  readonly lifetimeSeconds: number;
  sign(grant: BlobGrant, seconds?: number): string;
  /** The grant of a request, or FORBIDDEN when its signature is wrong or it has expired. */
  verify(request: { method: string; key: string; query: Readonly<Record<string, string>> }): BlobGrant;
}

export function createSignedUrls(parts: { url: string; key: Buffer; now: () => Date }): SignedUrls {
  const lifetimeSeconds = 15 * 60;

  const signature = (grant: BlobGrant, expires: string) =>
    createHmac("sha256", parts.key)
      .update(
        JSON.stringify([grant.method, grant.key, grant.maxBytes ?? null, grant.fileName ?? null, expires]),
      )
      .digest("base64url");

  return {
    lifetimeSeconds,

    sign(grant, seconds = lifetimeSeconds) {
      const expires = String(Math.floor(parts.now().getTime() / 1000) + seconds);
      const query = new URLSearchParams({ expires });
      if (grant.maxBytes !== undefined) query.set("max", String(grant.maxBytes));
      if (grant.fileName !== undefined) query.set("name", grant.fileName);
      query.set("signature", signature(grant, expires));
      const path = checkBlobKey(grant.key).map(encodeURIComponent).join("/");
      return `${parts.url}/blobs/${path}?${query}`;
    },

    verify({ method, key, query }) {
      const grant: BlobGrant = { method: method === "PUT" ? "PUT" : "GET", key };
      if (query["max"] !== undefined) grant.maxBytes = Number(query["max"]);
      if (query["name"] !== undefined) grant.fileName = query["name"];
      const expires = query["expires"] ?? "";
      const expected = Buffer.from(signature(grant, expires));
      const given = Buffer.from(query["signature"] ?? "");
      if (expected.length !== given.length || !timingSafeEqual(expected, given)) {
        throw new OsmosisError("FORBIDDEN", "The signature of this URL does not fit.", {
          hint: "Use the URL exactly as the server gave it.",
        });
      }
      if (Number(expires) * 1000 < parts.now().getTime()) {
        throw new OsmosisError("FORBIDDEN", "This URL has expired.", {
          hint: "Ask the server for another one.",
        });
      }
      return grant;
    },
  };
}
