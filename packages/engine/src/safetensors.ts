import { open, readFile, rename } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { dirname, join } from "node:path";
import { errorMessage, OsmosisError, repeatedKey } from "@osmosis/protocol";
import { z } from "zod";
import { bfloat16ToFloat32, float16ToFloat32, float32ToFloat16 } from "./half-float.ts";

/** A tensor in row-major order; `data.length` is the product of `shape`. */
export type WeightTensor = { readonly shape: readonly number[]; readonly data: Float32Array };

/** Tensors by their Hugging Face names. */
export type Weights = Map<string, WeightTensor>;

/**
 * Reads all tensors of a `.safetensors` file, or of all shards that a `.safetensors.index.json` names, as float32.
 * F32, F16 and BF16 are read; NaN and infinities are kept (`nonFiniteTensors` finds them).
 * @throws OsmosisError `NOT_FOUND` for a missing file, `VALIDATION` for one that breaks the format.
 */
export async function readSafetensors(path: string): Promise<Weights> {
  return path.endsWith(".json") ? await readShards(path) : await readFileTensors(path);
}

/**
 * Writes one `.safetensors` file, tensors in order of their names, so that equal weights give equal bytes. The file
 * appears whole or not at all.
 */
export async function writeSafetensors(
  path: string,
  tensors: ReadonlyMap<string, WeightTensor>,
  { dtype = "F32" }: { dtype?: "F32" | "F16" } = {},
): Promise<void> {
  const itemBytes = DTYPE_BYTES[dtype];
  const names = [...tensors.keys()].sort();
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let offset = 0;
  for (const [name, { shape, data }] of inOrder(names, tensors)) {
    if (product(shape) !== data.length) {
      throw new OsmosisError(
        "VALIDATION",
        `${path}: tensor ${name} has ${data.length} values, but shape [${shape.join(", ")}].`,
      );
    }
    const end = offset + data.length * itemBytes;
    header[name] = { dtype, shape, data_offsets: [offset, end] };
    offset = end;
  }
  const json = JSON.stringify(header);
  const jsonBytes = Buffer.byteLength(json);
  const headerBytes = Buffer.from(json + " ".repeat((8 - (jsonBytes % 8)) % 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(headerBytes.length));

  const partial = `${path}.partial`;
  await using file = await open(partial, "w");
  await file.writeFile(Buffer.concat([length, headerBytes]));
  for (const [, { data }] of inOrder(names, tensors)) {
    await file.writeFile(bytesOf(dtype === "F32" ? data : toFloat16(data)));
  }
  await file.sync();
  await rename(partial, path);
}

/** Names of the tensors that hold a NaN or an infinity, sorted. */
export function nonFiniteTensors(tensors: ReadonlyMap<string, WeightTensor>): string[] {
  const isBroken = ({ data }: WeightTensor): boolean => data.some((value) => !Number.isFinite(value));
  return [...tensors]
    .filter(([, tensor]) => isBroken(tensor))
    .map(([name]) => name)
    .sort();
}

const DTYPE_BYTES = { F32: 4, F16: 2, BF16: 2 } as const;
type Dtype = keyof typeof DTYPE_BYTES;

/** The format's own limit; it keeps a corrupt length from asking for gigabytes. */
const MAX_HEADER_BYTES = 100_000_000;

const Entry = z.object({
  dtype: z.string(),
  shape: z.array(z.int().nonnegative()),
  data_offsets: z.tuple([z.int().nonnegative(), z.int().nonnegative()]),
});

const ShardIndex = z.object({ weight_map: z.record(z.string(), z.string()) });

type TensorPlace = {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
};

async function readShards(indexPath: string): Promise<Weights> {
  const text = await readFile(indexPath, "utf8").catch((error: unknown) => {
    throw fileError(indexPath, error);
  });
  const index = ShardIndex.safeParse(parseJson(indexPath, text));
  if (!index.success) throw broken(indexPath, `it is not a shard index: ${z.prettifyError(index.error)}`);
  const weightMap = Object.entries(index.data.weight_map);
  const weights: Weights = new Map();
  /** Of every tensor that was found, wanted or not: of two with one name nobody can say which is meant. */
  const shardOf = new Map<string, string>();
  for (const shard of [...new Set(weightMap.map(([, file]) => file))].sort()) {
    if (/[/\\]/.test(shard) || shard === "..") {
      throw broken(indexPath, `shard "${shard}" is not a plain file name`);
    }
    const tensors = await readFileTensors(join(dirname(indexPath), shard));
    for (const name of tensors.keys()) {
      const other = shardOf.get(name);
      if (other !== undefined) throw broken(indexPath, `tensor ${name} is in ${other} and in ${shard}`);
      shardOf.set(name, shard);
    }
    for (const [name] of weightMap.filter(([, file]) => file === shard)) {
      const tensor = tensors.get(name);
      if (tensor === undefined) throw broken(indexPath, `tensor ${name} is not in shard ${shard}`);
      weights.set(name, tensor);
    }
  }
  return weights;
}

async function readFileTensors(path: string): Promise<Weights> {
  await using file = await open(path, "r").catch((error: unknown) => {
    throw fileError(path, error);
  });
  const { size } = await file.stat();
  const { places, dataStart } = await readHeader(path, file, size);
  const weights: Weights = new Map();
  for (const { name, dtype, shape, begin, end } of places) {
    const bytes = await readExactly(path, file, dataStart + begin, end - begin);
    weights.set(name, { shape, data: toFloat32(dtype, bytes) });
  }
  return weights;
}

async function readHeader(
  path: string,
  file: FileHandle,
  size: number,
): Promise<{ places: TensorPlace[]; dataStart: number }> {
  if (size < 8) throw broken(path, `it has ${size} bytes; the header length alone takes 8`);
  const length = (await readExactly(path, file, 0, 8)).readBigUInt64LE();
  if (length > MAX_HEADER_BYTES || length + 8n > size) {
    throw broken(path, `its header claims ${length} bytes, the file has ${size}`);
  }
  const dataStart = 8 + Number(length);
  const text = (await readExactly(path, file, 8, Number(length))).toString("utf8");
  const header = z.record(z.string(), z.unknown()).safeParse(parseJson(path, text));
  if (!header.success) throw broken(path, "its header is not a JSON object");
  const places = Object.entries(header.data)
    .filter(([name]) => name !== "__metadata__")
    .map(([name, entry]) => tensorPlace(path, name, entry));
  checkCoverage(path, places, size - dataStart);
  return { places, dataStart };
}

function tensorPlace(path: string, name: string, value: unknown): TensorPlace {
  const entry = Entry.safeParse(value);
  if (!entry.success) throw broken(path, `tensor ${name}: ${z.prettifyError(entry.error)}`);
  const { dtype, shape, data_offsets } = entry.data;
  if (!isDtype(dtype)) throw broken(path, `tensor ${name} is ${dtype}; F32, F16 and BF16 are supported`);
  const [begin, end] = data_offsets;
  const expected = product(shape) * DTYPE_BYTES[dtype];
  if (end - begin !== expected) {
    throw broken(
      path,
      `tensor ${name} of shape [${shape.join(", ")}] and type ${dtype} needs ${expected} bytes, its offsets span ${end - begin}`,
    );
  }
  return { name, dtype, shape, begin, end };
}

/** The format allows neither overlaps nor holes, so tensors in order of their offsets must tile the data exactly. */
function checkCoverage(path: string, places: readonly TensorPlace[], dataBytes: number): void {
  let previousEnd = 0;
  for (const { name, begin, end } of places.toSorted((a, b) => a.begin - b.begin || a.end - b.end)) {
    if (begin < previousEnd) throw broken(path, `tensor ${name} overlaps the tensor before it`);
    if (begin > previousEnd)
      throw broken(path, `there is a hole of ${begin - previousEnd} bytes before ${name}`);
    if (end > dataBytes)
      throw broken(path, `tensor ${name} ends at byte ${end} of ${dataBytes}: is it cut off?`);
    previousEnd = end;
  }
  if (previousEnd !== dataBytes) throw broken(path, `${dataBytes - previousEnd} bytes after the last tensor`);
}

async function readExactly(
  path: string,
  file: FileHandle,
  position: number,
  length: number,
): Promise<Buffer> {
  // A typed array of four-byte items can be laid over this buffer only because it is not a slice of Node's pool.
  const buffer = Buffer.alloc(length);
  let done = 0;
  while (done < length) {
    const { bytesRead } = await file.read(buffer, done, Math.min(length - done, 2 ** 30), position + done);
    if (bytesRead === 0)
      throw broken(path, `it ended while bytes ${position} to ${position + length} were read`);
    done += bytesRead;
  }
  return buffer;
}

function toFloat32(dtype: Dtype, bytes: Buffer): Float32Array {
  const { buffer, byteOffset, byteLength } = bytes;
  if (dtype === "F32") return new Float32Array(buffer, byteOffset, byteLength / 4);
  const convert = dtype === "F16" ? float16ToFloat32 : bfloat16ToFloat32;
  return Float32Array.from(new Uint16Array(buffer, byteOffset, byteLength / 2), convert);
}

function toFloat16(values: Float32Array): Uint16Array {
  const halves = new Uint16Array(values.length);
  values.forEach((value, i) => {
    halves[i] = float32ToFloat16(value);
  });
  return halves;
}

function bytesOf(array: Float32Array | Uint16Array): Buffer {
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength);
}

function* inOrder(
  names: readonly string[],
  tensors: ReadonlyMap<string, WeightTensor>,
): Generator<[string, WeightTensor]> {
  for (const name of names) {
    const tensor = tensors.get(name);
    if (tensor !== undefined) yield [name, tensor];
  }
}

function isDtype(dtype: string): dtype is Dtype {
  return Object.hasOwn(DTYPE_BYTES, dtype);
}

function product(shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}

/** The parser would keep the last of two tensors that have one name. */
function parseJson(path: string, text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw broken(path, `its JSON does not parse: ${errorMessage(error)}`);
  }
  const repeated = repeatedKey(text);
  if (repeated !== undefined) throw broken(path, `it names ${repeated} twice`);
  return value;
}

function broken(path: string, what: string): OsmosisError {
  return new OsmosisError("VALIDATION", `${path} is not a valid safetensors file: ${what}.`, {
    hint: "Download or export the file again.",
  });
}

function fileError(path: string, error: unknown): OsmosisError {
  return new OsmosisError("NOT_FOUND", `${path} cannot be read: ${errorMessage(error)}.`, { cause: error });
}
