import { createHash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { errorMessage } from "@osmosis/protocol";
import { z } from "zod";
import { jsonb } from "../../database/columns.ts";
import type { Platform } from "../../platform.ts";
import type { StoredFile } from "./tables.ts";

type BaseFile = StoredFile & { modified_ms: number };

/** Files of a model folder that are the model; what else lies there (a README, scripts) is not fetched by workers. */
const MODEL_FILE = /\.(json|safetensors|jinja|txt|model)$/;

const FROM_FOLDER = { imported_by: null, is_available: true };

/**
 * Registers the model folders of this server: those that ship with it as `osmosis/<folder>`, and those in the data
 * folder as `models/<owner>/<name>`. A folder is a model when it has a `config.json`. Files are kept as blobs by their
 * content, so runs go on with what they began with when a folder changes.
 */
export async function registerBaseModels(
  parts: Pick<Platform, "db" | "blobs" | "now" | "log"> & { readonly shipped: string; readonly own: string },
): Promise<void> {
  const { db, now, log } = parts;
  const folders = [
    ...(await subfolders(parts.shipped)).map((name) => ({
      name: `osmosis/${name}`,
      folder: join(parts.shipped, name),
    })),
    ...(await ownModels(parts.own)),
  ];
  const registered: string[] = [];
  for (const { name, folder } of folders) {
    if ((await stat(join(folder, "config.json")).catch(() => undefined)) === undefined) continue;
    try {
      await registerModel(parts, name, folder);
      registered.push(name);
    } catch (error) {
      log({ level: "warning", message: `The model in ${folder} cannot be used: ${errorMessage(error)}` });
    }
  }
  await db
    .updateTable("base_models")
    .set({ is_available: false, updated_at: now() })
    .where("is_available", "=", true)
    .where("imported_by", "is", null)
    .$if(registered.length > 0, (query) => query.where("name", "not in", registered))
    .execute();
}

async function registerModel(
  { db, blobs, now }: Pick<Platform, "db" | "blobs" | "now">,
  name: string,
  folder: string,
): Promise<void> {
  const known = await db.selectFrom("base_models").selectAll().where("name", "=", name).executeTakeFirst();
  const files: BaseFile[] = [];
  for (const entry of (await readdir(folder, { withFileTypes: true })).toSorted((a, b) =>
    a.name < b.name ? -1 : 1,
  )) {
    if (!entry.isFile() || !MODEL_FILE.test(entry.name)) continue;
    const path = join(folder, entry.name);
    const { size, mtimeMs } = await stat(path);
    const same = known?.files.find(
      (file) => file.name === entry.name && file.size_bytes === size && file.modified_ms === mtimeMs,
    );
    if (same !== undefined && (await blobs.stat(same.key)) !== undefined) {
      files.push(same);
      continue;
    }
    const sha256 = await hashOf(path);
    const key = `models/files/${sha256}`;
    if ((await blobs.stat(key)) === undefined) {
      // Node's and the DOM's declarations of the same web stream differ in name only.
      await blobs.put(key, Readable.toWeb(createReadStream(path)) as ReadableStream<Uint8Array>);
    }
    files.push({ name: entry.name, key, size_bytes: size, sha256, modified_ms: mtimeMs });
  }
  if (
    known?.is_available === true &&
    known.imported_by === null &&
    JSON.stringify(known.files) === JSON.stringify(files)
  )
    return;
  const parameters = await countParameters(
    folder,
    files.map((file) => file.name),
  );
  const state = { parameters, files: jsonb<readonly BaseFile[]>(files), ...FROM_FOLDER, updated_at: now() };
  await db
    .insertInto("base_models")
    .values({ id: randomUUID(), name, created_at: now(), ...state })
    .onConflict((conflict) => conflict.column("name").doUpdateSet(state))
    .execute();
}

async function hashOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

const Tensors = z.record(z.string(), z.object({ shape: z.array(z.int()).optional() }));

/** Elements of all tensors, from the headers of the safetensors files. */
async function countParameters(folder: string, names: readonly string[]): Promise<number> {
  let count = 0;
  for (const name of names.filter((one) => one.endsWith(".safetensors"))) {
    await using file = await open(join(folder, name));
    const prefix = Buffer.alloc(8);
    await file.read(prefix, 0, 8, 0);
    const sizeBytes = Number(prefix.readBigUInt64LE());
    if (sizeBytes > 100 * 1024 * 1024) throw new Error(`${name} is not a safetensors file`);
    const header = Buffer.alloc(sizeBytes);
    await file.read(header, 0, sizeBytes, 8);
    for (const tensor of Object.values(Tensors.parse(JSON.parse(header.toString("utf8"))))) {
      if (tensor.shape !== undefined) count += tensor.shape.reduce((product, size) => product * size, 1);
    }
  }
  return count;
}

async function ownModels(root: string): Promise<{ name: string; folder: string }[]> {
  const found = [];
  for (const owner of await subfolders(root)) {
    for (const name of await subfolders(join(root, owner))) {
      found.push({ name: `${owner}/${name}`, folder: join(root, owner, name) });
    }
  }
  return found;
}

async function subfolders(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  return entries
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .toSorted();
}
