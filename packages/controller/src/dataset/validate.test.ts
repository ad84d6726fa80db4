import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DatasetRow } from "@osmosis/protocol";
import { parquetWriteBuffer } from "hyparquet-writer";
import { describe, expect, test } from "vitest";
import { faultText } from "./fault.ts";
import { readDatasetFile, validateDataset, type DatasetFormat } from "./validate.ts";

const row = (n: number) => `{"user_prompt":"What is ${n} x 2?","ground_truth":"${n * 2}"}`;
const fourRows = [1, 2, 3, 4].map(row);

async function check(text: string | Uint8Array, format: DatasetFormat = "jsonl", chunkBytes = 7) {
  const bytes = typeof text === "string" ? Buffer.from(text) : text;
  const rows: DatasetRow[] = [];
  const report = await validateDataset({
    bytes: {
      sizeBytes: bytes.length,
      open: (range) =>
        inChunks(range === undefined ? bytes : bytes.subarray(range.start, range.end + 1), chunkBytes),
    },
    format,
    onRow: (row) => void rows.push(row),
  });
  return { ...report, rows, texts: report.faults.map(faultText) };
}

async function* inChunks(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

describe("what is accepted", () => {
  const expected = [1, 2, 3, 4].map((n, row_index) => ({
    row_index,
    messages: [{ role: "user", content: `What is ${n} x 2?` }],
    label: String(n * 2),
    metadata: null,
  }));

  test.each([
    ["a missing last newline", fourRows.join("\n")],
    ["CRLF", `${fourRows.join("\r\n")}\r\n`],
    ["a byte order mark", `\uFEFF${fourRows.join("\n")}\n`],
    ["trailing and inner blank lines", `${fourRows.join("\n\n")}\n\n  \n\n`],
  ])("JSONL with %s", async (_name, text) => {
    const { isValid, rows, rowCount, texts } = await check(text);
    expect({ isValid, rows, rowCount, texts }).toEqual({
      isValid: true,
      rows: expected,
      rowCount: 4,
      texts: [],
    });
  });

  test.each([
    [
      "a missing last newline",
      "user_prompt,ground_truth\nWhat is 1 x 2?,2\nWhat is 2 x 2?,4\nWhat is 3 x 2?,6\nWhat is 4 x 2?,8",
    ],
    [
      "CRLF, a byte order mark and a trailing blank line",
      "\uFEFFuser_prompt,ground_truth\r\nWhat is 1 x 2?,2\r\nWhat is 2 x 2?,4\r\nWhat is 3 x 2?,6\r\nWhat is 4 x 2?,8\r\n\r\n",
    ],
  ])("CSV with %s", async (_name, text) => {
    const { isValid, rows, texts } = await check(text, "csv");
    expect({ isValid, rows, texts }).toEqual({ isValid: true, rows: expected, texts: [] });
  });

  test("cells that span lines keep their newlines", async () => {
    const cells = [1, 2, 3, 4].map((n) => `"line one\nline ""${n}""",${n}`).join("\n");
    const { rows } = await check(`user_prompt,label\n${cells}\n`, "csv");
    expect(rows[3]).toEqual({
      row_index: 3,
      messages: [{ role: "user", content: 'line one\nline "4"' }],
      label: "4",
      metadata: null,
    });
  });

  test("a system prompt comes first, and null or an empty cell is none", async () => {
    const lines = ["be brief", null, "", "be kind"].map((system_prompt) =>
      JSON.stringify({ system_prompt, user_prompt: "hi", label: 7 }),
    );
    const { rows, texts } = await check(lines.join("\n"));
    expect(texts).toEqual([]);
    expect(rows.map((row) => row.messages.length)).toEqual([2, 1, 1, 2]);
    expect(rows[0]?.messages[0]).toEqual({ role: "system", content: "be brief" });
    expect(rows[0]?.label).toBe("7");
  });

  test("metadata stands in for prompts, as an object or as its JSON text", async () => {
    const lines = [
      `{"metadata":{"a":1}}`,
      `{"metadata":"{\\"a\\":2.5}"}`,
      `{"metadata":{"a":null}}`,
      `{"metadata":{"a":3}}`,
    ];
    const { rows, mode, texts } = await check(lines.join("\n"));
    expect(texts).toEqual([]);
    expect(mode).toBe("metadata");
    expect(rows.map((row) => row.metadata)).toEqual([{ a: 1 }, { a: 2.5 }, { a: null }, { a: 3 }]);
  });

  test("columns without a meaning are kept in the preview only", async () => {
    const { rows, preview } = await check(
      [1, 2, 3, 4].map((n) => `{"id":${n},"user_prompt":"q","label":"a"}`).join("\n"),
    );
    expect(preview[0]).toEqual({ id: 1, user_prompt: "q", label: "a" });
    expect(rows[0]).not.toHaveProperty("id");
  });
});

test("Parquet rows are read across row groups, structs and 64-bit integers included", async () => {
  const buffer = parquetWriteBuffer({
    columnData: [
      { name: "user_prompt", data: ["a", "b", "c", "d", "e"], type: "STRING" },
      { name: "metadata", data: ["a", "b", "c", "d", "e"].map((key, n) => ({ key, n })), type: "JSON" },
      { name: "id", data: [1n, 2n, 3n, 4n, 5n], type: "INT64" },
    ],
    rowGroupSize: 2,
  });
  const { rows, preview, texts } = await check(new Uint8Array(buffer), "parquet", 1000);
  expect(texts).toEqual([]);
  expect(rows[4]).toEqual({
    row_index: 4,
    messages: [{ role: "user", content: "e" }],
    label: null,
    metadata: { key: "e", n: 4 },
  });
  expect(preview[0]).toMatchObject({ id: 1 });
});

describe("what is refused, with its place and its remedy", () => {
  test.each<[string, string | Uint8Array, DatasetFormat, RegExp]>([
    [
      "three rows",
      fourRows.slice(1).join("\n"),
      "jsonl",
      /^the file has 3 rows\. A data set needs at least 4 rows/,
    ],
    ["no rows", "\n\n", "jsonl", /^the file has no rows/],
    ["a header alone", "user_prompt,label\n", "csv", /^the file has no rows/],
    [
      "a missing key",
      [...fourRows, `{"user_prompt":"x"}`].join("\n"),
      "jsonl",
      /^line 5, ground_truth: is missing, and line 1 has it/,
    ],
    [
      "another key",
      [...fourRows, `{"user_prompt":"x","ground_truth":"1","extra":1}`].join("\n"),
      "jsonl",
      /^line 5, extra: is a key that line 1 does not have/,
    ],
    [
      "a null prompt",
      [...fourRows, `{"user_prompt":null,"ground_truth":"1"}`].join("\n"),
      "jsonl",
      /^line 5, user_prompt: is null/,
    ],
    [
      "a blank prompt",
      [...fourRows, `{"user_prompt":"  ","ground_truth":"1"}`].join("\n"),
      "jsonl",
      /^line 5, user_prompt: is blank/,
    ],
    [
      "a prompt that is no text",
      [...fourRows, `{"user_prompt":["x"],"ground_truth":"1"}`].join("\n"),
      "jsonl",
      /^line 5, user_prompt: is an array, not text/,
    ],
    [
      "no ground truth",
      [...fourRows, `{"user_prompt":"x","ground_truth":null}`].join("\n"),
      "jsonl",
      /^line 5, ground_truth: is null/,
    ],
    ["an array line", [...fourRows, "[1]"].join("\n"), "jsonl", /^line 5: is an array, not an object/],
    ["broken JSON", [...fourRows, `{"user_prompt":`].join("\n"), "jsonl", /^line 5: is not valid JSON: /],
    [
      "one document over many lines",
      "[\n  {},\n  {}\n]",
      "jsonl",
      /^line 1: is not valid JSON.*one JSON document over many lines/,
    ],
    [
      "a duplicate key",
      [...fourRows, `{"user_prompt":"x","ground_truth":"1","user_pr\\u006fmpt":"y"}`].join("\n"),
      "jsonl",
      /^line 5, user_prompt: stands twice in this row/,
    ],
    [
      "a duplicate header",
      "user_prompt,label,label\na,b,c\n",
      "csv",
      /^line 1, label: is the name of column 2 and of column 3/,
    ],
    ["a nameless header", "user_prompt,label,\na,b,c\n", "csv", /^line 1: names no column 3/],
    [
      "a ragged row",
      'user_prompt,label\n"a\nb",1\nc,2\nd,3,4\ne,5\n',
      "csv",
      /^line 5: has 3 cells, and the header names 2 columns/,
    ],
    ["a blank cell", "user_prompt,label\na,1\nb,2\n ,3\nd,4\n", "csv", /^line 4, user_prompt: is blank/],
    [
      "a quote that stays open",
      'user_prompt,label\na,1\nb,2\nc,3\nd,"4\n',
      "csv",
      /^line 5: opens a quote that is never closed/,
    ],
    [
      "no prompt column",
      `{"userprompt":"a","label":"b"}`,
      "jsonl",
      /^line 1, user_prompt: is missing; the columns are userprompt, label\. Rename userprompt to user_prompt/,
    ],
    [
      "other columns altogether",
      `{"question":"a","answer":"b"}`,
      "jsonl",
      /^line 1, user_prompt: is missing.*or a column metadata/,
    ],
    ["Parquet", "PAR1", "parquet", /^the Parquet file cannot be read: .*convert it to JSONL/],
    [
      "UTF-16",
      Buffer.from("\uFEFFabc", "utf16le"),
      "jsonl",
      /^line 1: is not valid UTF-8 at byte 1.*The file is UTF-16/,
    ],
  ])("%s", async (_name, text, format, message) => {
    const { isValid, texts } = await check(text, format);
    expect(isValid).toBe(false);
    expect(texts[0]).toMatch(message);
    if (!message.source.includes("rows"))
      expect(texts.filter((text) => text.includes("needs at least"))).toEqual([]);
  });

  test.each([1, 3, 1000])(
    "invalid UTF-8 names its line and byte, whatever the chunks (%i)",
    async (chunkBytes) => {
      const bad = Buffer.concat([
        Buffer.from(`${fourRows.join("\n")}\n{"user_prompt":"gr\u00fc\u00df `),
        Buffer.from([0xe2, 0x82]),
        Buffer.from(`","ground_truth":"1"}\n`),
      ]);
      const { texts } = await check(bad, "jsonl", chunkBytes);
      expect(texts).toEqual([
        "line 5: is not valid UTF-8 at byte 24 of the line (0xe2). Save the file as UTF-8.",
      ]);
    },
  );

  test("invalid UTF-8 in a cell is one fault", async () => {
    const bad = Buffer.concat([
      Buffer.from("user_prompt,label\na,1\nb,2\nc"),
      Buffer.from([0xff]),
      Buffer.from(",3\nd,4\n"),
    ]);
    const { texts } = await check(bad, "csv");
    expect(texts).toEqual([
      "line 4: is not valid UTF-8 at byte 2 of the line (0xff). Save the file as UTF-8.",
    ]);
  });

  test.each<DatasetFormat>(["jsonl", "csv"])(
    "a line of 200 MB in %s is counted without being kept",
    async (format) => {
      const block = Buffer.alloc(1024 * 1024, "a");
      async function* bytes() {
        yield Buffer.from(
          format === "jsonl" ? `${fourRows.join("\n")}\n` : "user_prompt,label\na,1\nb,2\nc,3\nd,4\n",
        );
        for (let i = 0; i < 200; i++) yield block;
      }
      const { faults, faultCount } = await validateDataset({ bytes: { sizeBytes: 0, open: bytes }, format });
      expect(faultCount).toBe(1);
      expect(faults[0] && faultText(faults[0])).toBe(
        `line ${format === "jsonl" ? 5 : 6}: is 209715200 bytes long, and a line may have 16777216 (16 MiB). ` +
          "Shorten the row, or split the file where a newline is missing.",
      );
      expect(process.memoryUsage().arrayBuffers).toBeLessThan(150 * 1024 * 1024);
    },
  );

  test("values that are nested without end are a fault, not a crash", async () => {
    const deep = `${"[".repeat(50_000)}1${"]".repeat(50_000)}`;
    const { texts } = await check(`${fourRows.join("\n")}\n{"user_prompt":"x","ground_truth":${deep}}\n`);
    expect(texts).toEqual([
      "line 5: holds lists and objects inside each other, more than 100 deep. Flatten the row, or keep the deep part as text.",
    ]);
    const metadata = JSON.stringify(`{"a":${deep}}`);
    const { texts: inText } = await check(`{"metadata":${metadata}}\n`.repeat(4));
    expect(inText[0]).toMatch(/^line 1, metadata: holds lists and objects/);
  });

  test("twenty faults are told and the rest are counted", async () => {
    const { faults, faultCount } = await check(
      [...fourRows, ...Array.from({ length: 30 }, () => "[]")].join("\n"),
    );
    expect(faults).toHaveLength(20);
    expect(faultCount).toBe(30);
  });
});

const withFifth = (metadata: string) =>
  [
    ...Array.from({ length: 4 }, () => `{"metadata":{"a":1,"b":[{"c":"x"}]}}`),
    `{"metadata":${metadata}}`,
  ].join("\n");

describe("metadata", () => {
  test.each([
    ["null", /^line 5, metadata: is null, not an object/],
    [`""`, /^line 5, metadata: is blank/],
    ["{}", /^line 5, metadata: is an empty object/],
    ["[1]", /^line 5, metadata: is an array, not an object/],
    [`"[1]"`, /^line 5, metadata: is an array, not an object/],
    [`"{"`, /^line 5, metadata: is a string that holds no valid JSON/],
    [`"{\\"a\\":1,\\"a\\":2}"`, /^line 5, metadata \$\.a: stands twice/],
    [`{"a":1,"b":[{}]}`, /^line 5, metadata \$\.b\[\]: is an empty object/],
    [`{"a":"1"}`, /^line 5, metadata \$\.a: is of type string, and of type number in line 1/],
    [`{"b":[{"c":2}]}`, /^line 5, metadata \$\.b\[\]\.c: is of type number, and of type string in line 1/],
    [`{"a":9223372036854775807}`, /^line 5, metadata \$\.a: is an integer beyond 2\^53/],
    [`{"a":1,"b":[{"c":"x","c":"y"}]}`, /^line 5, metadata\.b\.\[\]\.c: stands twice/],
  ])("%s is refused", async (metadata, message) => {
    const { texts } = await check(withFifth(metadata));
    expect(texts).toHaveLength(1);
    expect(texts[0]).toMatch(message);
  });
});

test("a file is read by its extension; an empty one and a foreign one are refused", async () => {
  const folder = await mkdtemp(join(tmpdir(), "osmosis-dataset-"));
  try {
    await writeFile(join(folder, "multiply.JSONL"), fourRows.join("\n"));
    await writeFile(join(folder, "empty.csv"), "");
    const report = await readDatasetFile(join(folder, "multiply.JSONL"));
    expect(report).toMatchObject({
      isValid: true,
      rowCount: 4,
      format: "jsonl",
      columns: ["user_prompt", "ground_truth"],
    });
    await expect(readDatasetFile(join(folder, "empty.csv"))).rejects.toThrow(/is empty/);
    await expect(readDatasetFile(join(folder, "notes.txt"))).rejects.toThrow(
      /must end in \.jsonl, \.csv or \.parquet/,
    );
    await expect(readDatasetFile(join(folder, "absent.csv"))).rejects.toThrow(/cannot be read/);
    await expect(readDatasetFile(folder + ".csv")).rejects.toThrow(/cannot be read/);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
