import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { bfloat16ToFloat32, float16ToFloat32, float32ToFloat16 } from "./half-float.ts";
import { nonFiniteTensors, readSafetensors, writeSafetensors } from "./safetensors.ts";

let folder = "";

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "safetensors-"));
});

afterEach(async () => {
  await rm(folder, { recursive: true });
});

/** A file made by hand, so that the reader is not only checked against our own writer. */
async function handMade(header: unknown, data: Uint8Array, claimedLength?: number): Promise<string> {
  const json = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(claimedLength ?? json.length));
  const path = join(folder, "made.safetensors");
  await writeFile(path, Buffer.concat([length, json, data]));
  return path;
}

async function refusal(path: string): Promise<string> {
  const error = await readSafetensors(path).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(OsmosisError);
  return (error as OsmosisError).message; // checked the line above
}

describe("half precision", () => {
  test("every half-precision value survives both conversions", () => {
    for (let half = 0; half < 65_536; half++) {
      const value = float16ToFloat32(half);
      if (Number.isNaN(value)) expect(float32ToFloat16(value) & 0x7fff).toBeGreaterThan(0x7c00);
      else if (float32ToFloat16(value) !== half) expect.fail(`0x${half.toString(16)} became ${value}`);
    }
  });

  test("rounding is to the nearest, ties to even", () => {
    const rounded = [1 + 2 ** -11, 1 + 3 * 2 ** -11, 65_519, 65_520, 2 ** -25, 3 * 2 ** -25, -0].map(
      (value) => float16ToFloat32(float32ToFloat16(value)),
    );
    expect(rounded).toEqual([1, 1 + 2 ** -9, 65_504, Infinity, 0, 2 ** -23, -0]);
  });

  test("bfloat16 is the upper half of a float32", () => {
    expect([0x3f80, 0xbfc0, 0x0001].map(bfloat16ToFloat32)).toEqual([1, -1.5, 2 ** -133]);
  });
});

test("what is written is read back bit by bit, and twice the same bytes", async () => {
  const tensors = new Map([
    ["b.weight", { shape: [2, 3], data: Float32Array.of(1, -2.5, 1e-30, NaN, Infinity, 3) }],
    ["a", { shape: [], data: Float32Array.of(7) }],
    ["empty", { shape: [0, 4], data: new Float32Array(0) }],
  ]);
  const path = join(folder, "model.safetensors");
  await writeSafetensors(path, tensors);
  const first = await readFile(path);
  const read = await readSafetensors(path);
  expect(Object.fromEntries(read)).toEqual(Object.fromEntries(tensors));
  expect(nonFiniteTensors(read)).toEqual(["b.weight"]);

  await writeSafetensors(path, new Map([...tensors].reverse()));
  expect(await readFile(path)).toEqual(first);
  expect(await readdir(folder)).toEqual(["model.safetensors"]);
});

test("F16 files are read, and written with rounded values", async () => {
  const path = join(folder, "model.safetensors");
  const tensors = new Map([["w", { shape: [3], data: Float32Array.of(0.1, 2, -65_504) }]]);
  await writeSafetensors(path, tensors, { dtype: "F16" });
  const read = await readSafetensors(path);
  expect([...(read.get("w")?.data ?? [])]).toEqual([0.0999755859375, 2, -65_504]);
});

test("a BF16 file made elsewhere is read, its metadata ignored", async () => {
  const entry = { dtype: "BF16", shape: [1, 2], data_offsets: [0, 4] };
  const path = await handMade(
    { __metadata__: { format: "pt" }, w: entry },
    Uint8Array.of(0x80, 0x3f, 0xc0, 0xbf),
  );
  const w = (await readSafetensors(path)).get("w");
  expect(w).toEqual({ shape: [1, 2], data: Float32Array.of(1, -1.5) });
});

test("shards are read through their index", async () => {
  await writeSafetensors(
    join(folder, "one.safetensors"),
    new Map([["a", { shape: [1], data: Float32Array.of(1) }]]),
  );
  await writeSafetensors(
    join(folder, "two.safetensors"),
    new Map([["b", { shape: [1], data: Float32Array.of(2) }]]),
  );
  const index = join(folder, "model.safetensors.index.json");
  await writeFile(index, JSON.stringify({ weight_map: { a: "one.safetensors", b: "two.safetensors" } }));
  expect([...(await readSafetensors(index)).keys()]).toEqual(["a", "b"]);

  await writeFile(index, JSON.stringify({ weight_map: { c: "one.safetensors" } }));
  expect(await refusal(index)).toContain("tensor c is not in shard one.safetensors");
  await writeFile(index, JSON.stringify({ weight_map: { c: "../one.safetensors" } }));
  expect(await refusal(index)).toContain("not a plain file name");
});

const four = (begin: number, end: number) => ({ dtype: "F32", shape: [1], data_offsets: [begin, end] });

describe("a broken file names itself and the tensor", () => {
  test.each([
    ["a header longer than the file", {}, 0, 9999, "its header claims 9999 bytes"],
    ["a header that is no JSON", "{oops", 0, undefined, "its JSON does not parse"],
    ["a header that is no object", "[1]", 0, undefined, "not a JSON object"],
    ["overlapping tensors", { a: four(0, 4), b: four(2, 6) }, 6, undefined, "tensor b overlaps"],
    ["a hole", { a: four(0, 4), b: four(8, 12) }, 12, undefined, "hole of 4 bytes before b"],
    ["a size unlike the shape", { a: { ...four(0, 4), shape: [2] } }, 4, undefined, "tensor a of shape [2]"],
    ["a cut-off file", { a: four(0, 4) }, 3, undefined, "tensor a ends at byte 4 of 3"],
    ["bytes after the last tensor", { a: four(0, 4) }, 5, undefined, "1 bytes after the last tensor"],
    ["an unknown type", { a: { ...four(0, 4), dtype: "I32" } }, 4, undefined, "tensor a is I32"],
    ["a negative shape", { a: { ...four(0, 4), shape: [-1] } }, 4, undefined, "tensor a"],
  ] as const)("%s", async (_name, header, dataBytes, claimed, message) => {
    const path = await handMade(header, new Uint8Array(dataBytes), claimed);
    const text = await refusal(path);
    expect(text).toContain(message);
    expect(text).toContain(path);
  });

  test.each([
    ["two tensors of one name", '{"a":X,"b":Y,"a":X}', "it names a twice"],
    ["two tensors of one name, spelled in two ways", '{"a":X,"b":Y,"\\u0061":X}', "it names a twice"],
    [
      "a tensor with two shapes",
      '{"b":X,"a":{"shape":[1],"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
      "it names a.shape twice",
    ],
  ])("%s", async (_name, header, message) => {
    const text = header
      .replaceAll("X", JSON.stringify(four(0, 4)))
      .replaceAll("Y", JSON.stringify(four(4, 8)));
    expect(await refusal(await handMade(text, new Uint8Array(8)))).toContain(message);
  });

  test("a tensor in two shards, or twice in their index", async () => {
    const one = { shape: [1], data: Float32Array.of(1) };
    await writeSafetensors(join(folder, "one.safetensors"), new Map([["a", one]]));
    await writeSafetensors(
      join(folder, "two.safetensors"),
      new Map([
        ["b", one],
        ["a", one],
      ]),
    );
    const index = join(folder, "model.safetensors.index.json");
    await writeFile(index, '{"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}');
    expect(await refusal(index)).toContain("tensor a is in one.safetensors and in two.safetensors");
    await writeFile(
      index,
      '{"weight_map":{"a":"one.safetensors","b":"two.safetensors","a":"two.safetensors"}}',
    );
    expect(await refusal(index)).toContain("it names weight_map.a twice");
  });

  test("an empty and a missing file", async () => {
    const path = join(folder, "empty.safetensors");
    await writeFile(path, "");
    expect(await refusal(path)).toContain("it has 0 bytes");
    expect(await refusal(join(folder, "absent.safetensors"))).toContain("cannot be read");
  });
});
