import { randomUUID } from "node:crypto";
import { parseModelConfig, parseModelSize } from "@osmosis/engine";
import {
  errorMessage,
  holdWeights,
  OsmosisError,
  repeatedKey,
  type BaseModel,
  type ModelFile,
  type UploadInfo,
} from "@osmosis/protocol";
import type { Kysely } from "kysely";
import { z } from "zod";
import { jsonb } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import type { User } from "../accounts/service.ts";
import { UPLOADS, lockModelFiles } from "./model-files.ts";
import { PROVIDER_NAMES } from "./providers.ts";
import { baseViewOf } from "./service.ts";

type ImportRequest = {
  readonly model_name: string;
  readonly files: readonly ModelFile[];
  readonly overwrite: boolean;
};

type ImportParts = Pick<Platform, "db" | "blobs" | "blobUrls" | "now">;

const PART_BYTES = 32 * 1024 * 1024;

/**
 * Base models that people bring. Files are known by their SHA-256: what the server has is not sent again, and an import
 * that broke off goes on with the parts that are missing.
 */
export function createModelImports(parts: ImportParts) {
  const { db, blobs, blobUrls, now } = parts;
  /** By SHA-256, the last of those who make a file of its parts; who comes meanwhile finds the file, not half of them. */
  const assembling = new Map<string, Promise<void>>();

  return {
    /** @throws {OsmosisError} VALIDATION for what cannot be a model; CONFLICT for a name that is taken. */
    async start(
      user: User,
      request: ImportRequest,
    ): Promise<{ uploads: { name: string; upload: UploadInfo }[] }> {
      checkRequest(request);
      await refuseTakenName(db, user, request);
      const uploads = [];
      for (const file of request.files) {
        const found = await blobs.stat(fileKey(file));
        if (found?.sizeBytes !== file.size_bytes)
          uploads.push({ name: file.name, upload: await uploadOf(file) });
      }
      return { uploads };
    },

    /**
     * Registers the model. Whoever registered it, and has not heard of it, may do so again.
     *
     * @throws {OsmosisError} as `start`; VALIDATION when files are missing, are not what was announced, or are no model
     * that can be trained, here or, without weights, at a trainer by URL.
     */
    async finish(user: User, request: ImportRequest): Promise<BaseModel> {
      checkRequest(request);
      await refuseTakenName(db, user, request);
      for (const file of request.files) await assemble(file);
      const parameters = await countParameters(request.files);
      await checkConfig(request.files);
      const files = request.files.map((file) => ({ ...file, key: fileKey(file), modified_ms: 0 }));
      const state = {
        parameters,
        files: jsonb<readonly (typeof files)[number][]>(files),
        imported_by: user.id,
        is_available: true,
        updated_at: now(),
      };
      const row = await db.transaction().execute(async (transaction) => {
        await lockModelFiles(transaction);
        // Somebody else may have taken the name since.
        await refuseTakenName(transaction, user, request);
        for (const file of request.files) {
          if ((await blobs.stat(fileKey(file))) === undefined)
            throw incomplete(file, "it was deleted meanwhile");
        }
        return await transaction
          .insertInto("base_models")
          .values({ id: randomUUID(), name: request.model_name, created_at: now(), ...state })
          .onConflict((conflict) => conflict.column("name").doUpdateSet(state))
          .returningAll()
          .executeTakeFirstOrThrow();
      });
      return { ...baseViewOf(row), creator_name: user.name };
    },
  };

  async function uploadOf(file: ModelFile): Promise<UploadInfo> {
    const sizes = partSizes(file);
    const missing = [];
    for (const [index, size] of sizes.entries()) {
      const key = partKey(file, index);
      if ((await blobs.stat(key))?.sizeBytes === size) continue;
      const presigned_url = blobUrls.sign({ method: "PUT", key, maxBytes: size });
      missing.push({ part_number: index + 1, presigned_url, size });
    }
    return {
      method: "multipart",
      part_size: PART_BYTES,
      total_parts: sizes.length,
      presigned_urls: missing,
      upload_id: file.sha256,
      s3_key: fileKey(file),
    };
  }

  async function assemble(file: ModelFile): Promise<void> {
    const former = assembling.get(file.sha256)?.catch(() => {});
    const own = Promise.resolve(former).then(() => makeWhole(file));
    assembling.set(file.sha256, own);
    try {
      await own;
    } finally {
      if (assembling.get(file.sha256) === own) assembling.delete(file.sha256);
    }
  }

  /** Makes one blob of a file's parts, under its SHA-256 only when that is what it has. */
  async function makeWhole(file: ModelFile): Promise<void> {
    const found = await blobs.stat(fileKey(file));
    if (found?.sizeBytes === file.size_bytes) return;
    const keys = partSizes(file).map((_size, index) => partKey(file, index));
    for (const [index, size] of partSizes(file).entries()) {
      const arrived = (await blobs.stat(partKey(file, index)))?.sizeBytes ?? 0;
      if (arrived === size) continue;
      throw incomplete(file, `of part ${index + 1} ${arrived} of ${size} bytes have arrived`);
    }
    // The parts can still be written to by whoever holds their URLs, so what is checked is a copy.
    const whole = `${UPLOADS}/${file.sha256}/${randomUUID()}`;
    try {
      const { sha256 } = await blobs.compose(whole, keys);
      if (sha256 !== file.sha256) {
        throw new OsmosisError(
          "VALIDATION",
          `${file.name} arrived with another SHA-256 (${sha256}) than was announced.`,
          { hint: "The file changed while it was sent, or was damaged on the way: run the command again." },
        );
      }
      await blobs.compose(fileKey(file), [whole]);
    } finally {
      for (const key of [whole, ...keys]) await blobs.delete(key);
    }
  }

  async function countParameters(files: readonly ModelFile[]): Promise<number> {
    let count = 0;
    for (const file of files.filter(({ name }) => name.endsWith(".safetensors"))) {
      const headerBytes = (await read(file, 0, 8)).readBigUInt64LE();
      if (headerBytes > MAX_HEADER_BYTES || headerBytes + 8n > file.size_bytes)
        throw refused(file, "its header is longer than the file");
      const header = await read(file, 8, Number(headerBytes));
      const tensors = parse(file, Tensors, header);
      const repeated = repeatedKey(header.toString("utf8"));
      if (repeated !== undefined) throw refused(file, `its header names ${repeated} twice`);
      for (const { shape } of Object.values(tensors))
        count += shape?.reduce((product, size) => product * size, 1) ?? 0;
    }
    if (!Number.isSafeInteger(count)) {
      throw new OsmosisError("VALIDATION", `The model claims to have ${count} parameters.`);
    }
    return count;
  }

  async function checkConfig(files: readonly ModelFile[]): Promise<void> {
    const check = holdWeights(files) ? parseModelConfig : parseModelSize;
    for (const file of files.filter(({ name }) => name === "config.json")) {
      check(parse(file, z.unknown(), await read(file, 0, file.size_bytes)), file.name);
    }
  }

  async function read(file: ModelFile, start: number, length: number): Promise<Buffer> {
    const found = await blobs.get(fileKey(file), { start, end: start + length - 1 });
    if (found === undefined) throw refused(file, "it is gone");
    const bytes = Buffer.from(await new Response(found.body).arrayBuffer());
    if (bytes.length !== length) throw refused(file, "it is cut off");
    return bytes;
  }
}

const MAX_HEADER_BYTES = 100 * 1024 * 1024;
/** config.json and its kin; safetensors may have any size. */
const MAX_JSON_BYTES = 256 * 1024 * 1024;
/** Of all files together: a trillion parameters of two bytes. Each part of them gets an address of its own. */
const MAX_MODEL_BYTES = 2 * 1024 ** 4;

const NEEDED = ["config.json", "tokenizer.json", "tokenizer_config.json"];

const WEIGHTS_INDEX = "model.safetensors.index.json";

const Tensors = z.record(z.string(), z.object({ shape: z.array(z.int().nonnegative()).optional() }));

/** The owner of names like `osmosis/tiny-agent`. */
const SHIPPED = "osmosis";

/** @throws {OsmosisError} VALIDATION. */
function checkRequest({ model_name: name, files }: ImportRequest): void {
  const owner = name.slice(0, name.indexOf("/"));
  if (owner === SHIPPED || PROVIDER_NAMES.includes(owner)) {
    throw new OsmosisError(
      "VALIDATION",
      `Names of models cannot begin with ${owner}/ here: it names others.`,
      {
        hint: `Choose another name, as with --name my/${name.slice(owner.length + 1)}.`,
      },
    );
  }
  const names = new Set(files.map((file) => file.name));
  if (names.size < files.length) throw new OsmosisError("VALIDATION", "A file of the model is named twice.");
  const missing = NEEDED.filter((needed) => !names.has(needed));
  // Who leaves the weights out leaves out the list of them, too.
  if (!holdWeights(files) && names.has(WEIGHTS_INDEX)) missing.push("model.safetensors");
  if (missing.length > 0) {
    throw new OsmosisError("VALIDATION", `The model has no ${missing.join(", ")}.`, {
      hint: "A model is a folder with config.json, tokenizer.json, tokenizer_config.json and safetensors.",
    });
  }
  const total = files.reduce((sum, file) => sum + file.size_bytes, 0);
  if (total > MAX_MODEL_BYTES) {
    throw new OsmosisError("VALIDATION", `The model has ${total} bytes; it may have 2 TiB.`);
  }
  const large = files.find((file) => !file.name.endsWith(".safetensors") && file.size_bytes > MAX_JSON_BYTES);
  if (large !== undefined) throw refused(large, `it has ${large.size_bytes} bytes`);
}

/** @throws {OsmosisError} CONFLICT, unless the name has the same files already, from the same person. */
async function refuseTakenName(
  db: Kysely<Tables>,
  user: User,
  { model_name: name, files, overwrite }: ImportRequest,
): Promise<void> {
  const existing = await db.selectFrom("base_models").selectAll().where("name", "=", name).executeTakeFirst();
  if (existing === undefined || !existing.is_available) return;
  if (existing.imported_by === null || (existing.imported_by !== user.id && !(await isOwner(db, user)))) {
    throw new OsmosisError("CONFLICT", `The model ${name} exists, and is not yours to replace.`, {
      hint: "Choose another name with --name.",
    });
  }
  if (!overwrite && !(existing.imported_by === user.id && areSame(existing.files, files))) {
    throw new OsmosisError("CONFLICT", `There is a base model named ${name} already.`, {
      hint: "Add --overwrite to replace it, or choose another name with --name. Runs keep the files that they began with.",
    });
  }
}

function areSame(some: readonly ModelFile[], others: readonly ModelFile[]): boolean {
  const [these, those] = [some, others].map((files) =>
    files.map(({ name, sha256 }) => `${name} ${sha256}`).toSorted(),
  );
  return JSON.stringify(these) === JSON.stringify(those);
}

async function isOwner(db: Kysely<Tables>, user: User): Promise<boolean> {
  const row = await db.selectFrom("users").select("is_owner").where("id", "=", user.id).executeTakeFirst();
  return row?.is_owner === true;
}

function fileKey({ sha256 }: ModelFile): string {
  return `models/files/${sha256}`;
}

function partKey(file: ModelFile, index: number): string {
  return `${UPLOADS}/${file.sha256}/${file.size_bytes}/${index + 1}`;
}

function partSizes({ size_bytes: size }: ModelFile): number[] {
  return Array.from({ length: Math.ceil(size / PART_BYTES) }, (_, index) =>
    Math.min(PART_BYTES, size - index * PART_BYTES),
  );
}

function parse<T>(file: ModelFile, schema: z.ZodType<T>, bytes: Buffer): T {
  try {
    return schema.parse(JSON.parse(bytes.toString("utf8")));
  } catch (error) {
    throw refused(file, `its JSON cannot be read: ${errorMessage(error)}`);
  }
}

function incomplete({ name }: ModelFile, what: string): OsmosisError {
  return new OsmosisError("VALIDATION", `${name} is not complete: ${what}.`, {
    hint: "Run the command again: it goes on where it stopped.",
  });
}

function refused(file: ModelFile, what: string): OsmosisError {
  return new OsmosisError("VALIDATION", `${file.name} cannot be a file of a model: ${what}.`);
}
