import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { authRoutes, createClient } from "@osmosis/protocol";
import { z } from "zod";
import type { TestPlatform } from "./platform.ts";

/** A key for training at a platform. */
export async function mintTrainerKey({ data, url }: TestPlatform): Promise<string> {
  const secret = (await readFile(join(data, "local-secret"), "utf8")).trim();
  const { token } = await createClient({ baseUrl: url, fetch }).call(authRoutes.localToken, {
    body: { secret, name: "key" },
  });
  const answer = await fetch(`${url}/api/tinker-keys`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: "{}",
  });
  return z.object({ api_key: z.string() }).parse(await answer.json()).api_key;
}
