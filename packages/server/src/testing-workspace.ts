import { randomUUID } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createClient, datasetRoutes, type Client, type Dataset } from "@osmosis/protocol";
import type { TestServer } from "./testing.ts";

/** A workspace with a repository of a few files, for tests. */
export interface TestWorkspace {
  readonly id: string;
  readonly name: string;
  /** What names the workspace in a request. */
  readonly headers: Record<string, string>;
  /** The typed client of the owner, which checks every answer against its route. */
  readonly client: Client;
  /** Uploads a file and waits until it is read. */
  upload(name: string, text: string | Uint8Array, extension?: "jsonl" | "csv"): Promise<Dataset>;
}

/** Makes a workspace that the owner of the server belongs to. `files` by path are its first commit. */
export async function createTestWorkspace(
  server: TestServer,
  files: Readonly<Record<string, string>> = {},
): Promise<TestWorkspace> {
  const { platform } = server;
  const id = randomUUID();
  const name = `w-${id.slice(0, 8)}`;
  const repository = `${name}/workspace`;
  await platform.db
    .insertInto("workspaces")
    .values({ id, name, repository, default_branch: "main" })
    .execute();
  await platform.db
    .insertInto("memberships")
    .values({ workspace_id: id, user_id: platform.owner.id, role: "owner" })
    .execute();
  if (Object.keys(files).length > 0) {
    await withFolder(files, async (folder) => {
      await platform.repositories.create(id, folder);
    });
    await platform.workspaces.sync(id);
  }
  const headers = { "x-osmosis-git": repository };
  const client = createClient({
    baseUrl: server.url,
    fetch,
    headers: () => ({ authorization: `Bearer ${server.ownerToken}`, ...headers }),
  });
  return {
    id,
    name,
    headers,
    client,
    async upload(fileName, text, extension = "jsonl") {
      const bytes = Buffer.from(text);
      const created = await client.call(datasetRoutes.create, {
        body: { file_name: fileName, file_size: bytes.length, extension },
      });
      if (created.upload.method !== "simple") throw new Error("too large for this");
      await fetch(created.upload.presigned_url, { method: "PUT", body: bytes });
      await client.call(datasetRoutes.complete, { params: { id: created.id }, body: {} });
      return await until(async () => {
        const dataset = await client.call(datasetRoutes.get, { params: { name: fileName } });
        return dataset.status === "processing" ? undefined : dataset;
      });
    },
  };
}

/** The first value that is not undefined or false; asked for again and again, for half a minute. */
export async function until<T>(
  ask: () => Promise<T | undefined | false> | T | undefined | false,
): Promise<T> {
  const end = Date.now() + 30_000;
  for (;;) {
    const value = await ask();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > end) throw new Error("what was waited for has not come");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function withFolder(
  files: Readonly<Record<string, string>>,
  use: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "osmosis-files-"));
  try {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), text);
    }
    await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
