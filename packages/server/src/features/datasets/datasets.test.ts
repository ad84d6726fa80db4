import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { datasetRoutes } from "@osmosis/protocol";
import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { withDatabaseLocation } from "../../database/testing.ts";
import { startTestServer, type TestServer } from "../../testing.ts";
import { createTestWorkspace, until, type TestWorkspace } from "../../testing-workspace.ts";
import { deleteUnusedBytes } from "./sweep.ts";
import { PART_BYTES } from "./upload.ts";

const rows = (count: number, answer = 2) =>
  Array.from(
    { length: count },
    (_, n) => `{"user_prompt":"What is ${n} x ${answer}?","label":"${n * answer}"}\n`,
  ).join("");

withDatabaseLocation("data sets", (locate) => {
  let server: TestServer;
  let workspace: TestWorkspace;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
    workspace = await createTestWorkspace(server);
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const post = (path: string, json: unknown) =>
    server.json("POST", path, { json, headers: workspace.headers });
  const create = (file_name: string, file_size: number, more: object = {}) =>
    post("/api/cli/datasets", { file_name, file_size, extension: "jsonl", ...more });

  test("an uploaded file becomes a data set with its rows counted and previewed", async () => {
    const dataset = await workspace.upload("multiply", rows(25));
    expect(dataset).toMatchObject({
      name: "multiply",
      file_name: "multiply",
      status: "uploaded",
      row_count: 25,
      error: null,
      file_format: "jsonl",
      creator_name: "Owner",
    });
    expect(dataset.data_preview).toHaveLength(20);
    expect(dataset.data_preview?.[1]).toEqual({ user_prompt: "What is 1 x 2?", label: "2" });
    const { datasets, total_count } = await workspace.client.call(datasetRoutes.list, { query: {} });
    expect(datasets.map((one) => one.name)).toContain("multiply");
    expect(total_count).toBe(datasets.length);
    const { logs } = await workspace.client.call(datasetRoutes.logs, {
      params: { name: "multiply" },
      query: {},
    });
    expect(logs.map((line) => line.message)).toEqual(["Read 25 rows with the columns user_prompt, label."]);
  });

  test("the file can be downloaded as it was", async () => {
    await workspace.upload("back", `\uFEFF${rows(4)}`);
    const { presigned_url, file_name } = await workspace.client.call(datasetRoutes.download, {
      params: { name: "back" },
    });
    expect(file_name).toBe("back.jsonl");
    expect(Buffer.from(await (await fetch(presigned_url)).arrayBuffer()).toString()).toBe(`\uFEFF${rows(4)}`);
  });

  describe("a file with faults", () => {
    test.each<[string, string | Uint8Array, "jsonl" | "csv", RegExp]>([
      ["three rows", rows(3), "jsonl", /the file has 3 rows\. A data set needs at least 4 rows\./],
      [
        "mixed schemas",
        `${rows(4)}{"user_prompt":"x"}\n`,
        "jsonl",
        /^line 5, label: is missing, and line 1 has it/,
      ],
      [
        "a null prompt",
        `${rows(4)}{"user_prompt":null,"label":"1"}\n`,
        "jsonl",
        /^line 5, user_prompt: is null/,
      ],
      [
        "a blank prompt",
        `${rows(4)}{"user_prompt":" ","label":"1"}\n`,
        "jsonl",
        /^line 5, user_prompt: is blank/,
      ],
      [
        "invalid UTF-8",
        Buffer.concat([Buffer.from(rows(4)), Buffer.from([0xc3, 0x28])]),
        "jsonl",
        /^line 5: is not valid UTF-8 at byte 1/,
      ],
      [
        "a duplicate header",
        "user_prompt,label,label\na,1,1\n",
        "csv",
        /^line 1, label: is the name of column 2 and of column 3/,
      ],
      [
        "a duplicate key",
        `${rows(4)}{"user_prompt":"a","label":"1","label":"2"}\n`,
        "jsonl",
        /^line 5, label: stands twice/,
      ],
      [
        "ragged rows",
        "user_prompt,label\na,1\nb,2\nc\nd,4\n",
        "csv",
        /^line 4: has 1 cells, and the header names 2 columns/,
      ],
      [
        "a NUL character",
        `${rows(4)}{"user_prompt":"\\u0000","label":"\\u0000", "x\\u0000": 1}\n`,
        "jsonl",
        /^line 5, x.: is a key that line 1 does not have/,
      ],
    ])(
      "with %s ends as an error that names the place and the remedy",
      async (name, content, extension, message) => {
        const dataset = await workspace.upload(`faulty ${name}`, content, extension);
        expect(dataset.status).toBe("error");
        expect(dataset.error).toMatch(message);
        const { logs } = await workspace.client.call(datasetRoutes.logs, {
          params: { name: dataset.id },
          query: {},
        });
        expect(logs[0]).toMatchObject({
          level: "error",
          step: "validate",
          message: expect.stringMatching(message),
        });
      },
    );

    test("can be uploaded again under its name, without overwriting", async () => {
      expect((await workspace.upload("retry", rows(1))).status).toBe("error");
      expect(await workspace.upload("retry", rows(4))).toMatchObject({ status: "uploaded", row_count: 4 });
    });
  });

  test("a name that is taken is refused with the id that holds it, until it is overwritten", async () => {
    const { id } = await workspace.upload("taken", rows(4));
    const refused = await create("taken", 10);
    expect(refused).toEqual({
      status: 409,
      body: {
        error: "There is a data set taken already.",
        code: "CONFLICT",
        hint: expect.stringContaining("--overwrite"),
        existing_dataset_id: id,
      },
    });
    const bytes = Buffer.from(rows(6, 3));
    const created = await workspace.client.call(datasetRoutes.create, {
      body: { file_name: "taken", file_size: bytes.length, extension: "jsonl", overwrite_dataset_id: id },
    });
    if (created.upload.method !== "simple") throw new Error("unexpected");
    expect(created.id).toBe(id);
    await fetch(created.upload.presigned_url, { method: "PUT", body: bytes });
    await workspace.client.call(datasetRoutes.complete, { params: { id }, body: {} });
    const dataset = await until(async () => {
      const now = await workspace.client.call(datasetRoutes.get, { params: { name: "taken" } });
      return now.status === "uploaded" && now;
    });
    expect(dataset.row_count).toBe(6);
    // The first version stays for the runs that use it.
    const versions = await server.platform.db
      .selectFrom("dataset_versions")
      .select(["number", "status", "row_count", "id"])
      .where("dataset_id", "=", id)
      .orderBy("number")
      .execute();
    expect(versions.map(({ number, status, row_count }) => [number, status, row_count])).toEqual([
      [1, "uploaded", 4],
      [2, "uploaded", 6],
    ]);
    expect(await server.platform.blobs.stat(`datasets/${id}/${versions[0]?.id}/rows.jsonl`)).toBeDefined();
  });

  test("of uploads of one name at the same time one wins", async () => {
    const answers = await Promise.all(Array.from({ length: 6 }, () => create("race", 20)));
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      200, 409, 409, 409, 409, 409,
    ]);
  });

  test("an upload that was left lying is overwritten by the next", async () => {
    const first = (await create("left", 10)).body as { id: string };
    const second = await create("left", Buffer.byteLength(rows(5)), { overwrite_dataset_id: first.id });
    expect(second.status).toBe(200);
    const { upload } = second.body as { upload: { presigned_url: string } };
    await fetch(upload.presigned_url, { method: "PUT", body: rows(5) });
    await post(`/api/cli/datasets/${first.id}/complete`, {});
    const dataset = await until(async () => {
      const now = await workspace.client.call(datasetRoutes.get, { params: { name: "left" } });
      return now.status === "uploaded" && now;
    });
    expect(dataset).toMatchObject({ id: first.id, row_count: 5 });
  });

  test("an aborted overwrite leaves the former version in use", async () => {
    const { id } = await workspace.upload("kept", rows(4));
    await create("kept", 10, { overwrite_dataset_id: id });
    expect((await post(`/api/cli/datasets/${id}/abort`, {})).status).toBe(200);
    expect(await workspace.client.call(datasetRoutes.get, { params: { name: "kept" } })).toMatchObject({
      status: "uploaded",
      row_count: 4,
    });
    expect((await post(`/api/cli/datasets/${id}/complete`, {})).status).toBe(200);
  });

  test("an upload whose bytes have not arrived is not completed", async () => {
    const { body } = await create("short", 100);
    const { id, upload } = body as { id: string; upload: { presigned_url: string } };
    const answer = await post(`/api/cli/datasets/${id}/complete`, {});
    expect(answer).toMatchObject({
      status: 400,
      body: {
        error: "The upload of short is not complete: of the file 0 of 100 bytes have arrived.",
        code: "VALIDATION",
      },
    });
    const tooLong = await fetch(upload.presigned_url, { method: "PUT", body: "x".repeat(101) });
    expect(tooLong.status).toBe(400);
  });

  test("the URL of a completed upload changes the data set no more", async () => {
    const { body } = await create("fixed", Buffer.byteLength(rows(4)));
    const { id, upload } = body as { id: string; upload: { presigned_url: string } };
    await fetch(upload.presigned_url, { method: "PUT", body: rows(4) });
    await post(`/api/cli/datasets/${id}/complete`, {});
    await fetch(upload.presigned_url, { method: "PUT", body: "something else" });
    const { presigned_url } = await workspace.client.call(datasetRoutes.download, { params: { name: id } });
    expect(await (await fetch(presigned_url)).text()).toBe(rows(4));
  });

  test("half of a surrogate pair in a row is shown as a replacement character", async () => {
    const broken = await workspace.upload("surrogate", `{"user_prompt":"\\ud800","label":"1"}\n${rows(4)}`);
    expect(broken).toMatchObject({ status: "uploaded", error: null, row_count: 5 });
    expect(broken.data_preview?.[0]).toEqual({ user_prompt: "\ufffd", label: "1" });
  });

  test("bytes that nobody can ask for are deleted, and those of runs and of the newest version stay", async () => {
    const { blobs, db } = server.platform;
    const first = await workspace.upload("swept", rows(4));
    const late = (await create("swept-late", 100)).body as { id: string; upload: { presigned_url: string } };
    await fetch(late.upload.presigned_url, { method: "PUT", body: "x".repeat(50) });
    await post(`/api/cli/datasets/${late.id}/abort`, {});
    await fetch(late.upload.presigned_url, { method: "PUT", body: "x".repeat(50) });
    await create("swept", Buffer.byteLength(rows(5)), { overwrite_dataset_id: first.id }).then(
      async ({ body }) => {
        const { upload } = body as { upload: { presigned_url: string } };
        await fetch(upload.presigned_url, { method: "PUT", body: rows(5) });
        await post(`/api/cli/datasets/${first.id}/complete`, {});
        await until(
          async () => (await keysOf(first.id)).filter((key) => key.endsWith("rows.jsonl")).length === 2,
        );
      },
    );
    const later = (ms: number) => ({ db, blobs, now: () => new Date(Date.now() + ms), log: () => {} });
    await deleteUnusedBytes(later(0));
    expect(await keysOf(late.id)).toHaveLength(1);
    await deleteUnusedBytes(later(2 * 3600_000));
    expect(await keysOf(late.id)).toEqual([]);
    expect((await keysOf(first.id)).filter((key) => key.endsWith("rows.jsonl"))).toHaveLength(2);
    await until(
      async () =>
        (await workspace.client.call(datasetRoutes.get, { params: { name: "swept" } })).row_count === 5,
    );
    await deleteUnusedBytes(later(50 * 3600_000));
    expect((await keysOf(first.id)).map((key) => key.split("/").at(-1))).toEqual(["rows.jsonl", "source"]);
  });

  async function keysOf(id: string): Promise<string[]> {
    const keys: string[] = [];
    for await (const { key } of server.platform.blobs.list(`datasets/${id}`)) keys.push(key);
    return keys.toSorted();
  }

  test("completing twice is the same as once", async () => {
    const { body } = await create("twice", Buffer.byteLength(rows(4)));
    const { id, upload } = body as { id: string; upload: { presigned_url: string } };
    await fetch(upload.presigned_url, { method: "PUT", body: rows(4) });
    const answers = await Promise.all([1, 2, 3].map(() => post(`/api/cli/datasets/${id}/complete`, {})));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    await until(
      async () =>
        (await workspace.client.call(datasetRoutes.get, { params: { name: id } })).status === "uploaded",
    );
  });

  test("a large file goes up in parts, and their order is kept", async () => {
    const line = `{"user_prompt":"${"x".repeat(1000)}","label":"1"}\n`;
    const bytes = Buffer.from(line.repeat(Math.ceil((2 * PART_BYTES + 1000) / line.length)));
    const { upload, id } = await workspace.client.call(datasetRoutes.create, {
      body: { file_name: "large", file_size: bytes.length, extension: "jsonl" },
    });
    if (upload.method !== "multipart") throw new Error("expected parts");
    expect(upload.total_parts).toBe(3);
    let offset = 0;
    const parts = [];
    for (const { part_number, presigned_url, size } of upload.presigned_urls) {
      const answer = await fetch(presigned_url, {
        method: "PUT",
        body: bytes.subarray(offset, offset + size),
      });
      parts.push({ PartNumber: part_number, ETag: answer.headers.get("etag") ?? "" });
      offset += size;
    }
    await workspace.client.call(datasetRoutes.complete, { params: { id }, body: { parts } });
    const dataset = await until(async () => {
      const now = await workspace.client.call(datasetRoutes.get, { params: { name: "large" } });
      return now.status !== "processing" && now;
    });
    expect(dataset).toMatchObject({ status: "uploaded", row_count: bytes.length / line.length });
  });

  test.each([
    [{ file_name: "../x" }, /cannot be the name of a data set/],
    [{ file_name: "a/b" }, /cannot be the name of a data set/],
    [{ file_size: 0 }, /file_size/],
    [{ file_size: 6 * 1024 ** 3 }, /a data set may have 5 GiB/],
    [{ extension: "txt" }, /extension/],
  ])("a create request with %j is refused", async (fault, message) => {
    const { status, body } = await create("bad", 10, fault);
    expect(status).toBe(400);
    expect(JSON.stringify(body)).toMatch(message);
  });

  test("another workspace sees nothing of it", async () => {
    const other = await createTestWorkspace(server);
    await expect(other.client.call(datasetRoutes.get, { params: { name: "multiply" } })).rejects.toThrow(
      /There is no data set multiply in the workspace/,
    );
  });

  test("names with odd characters are addressed percent-encoded", async () => {
    await workspace.upload("100% ünïcode & more", rows(4));
    const dataset = await workspace.client.call(datasetRoutes.get, {
      params: { name: "100% ünïcode & more" },
    });
    expect(dataset.status).toBe("uploaded");
  });
});

test("a data set whose server was killed while it read it is read after the start", async () => {
  const dataFolder = await mkdtemp(join(tmpdir(), "osmosis-reading-"));
  const place = { database: { kind: "folder", folder: dataFolder }, config: { dataFolder } } as const;
  try {
    let id: string;
    {
      await using server = await startTestServer(place);
      const workspace = await createTestWorkspace(server, { "README.md": "rows\n" });
      id = (await workspace.upload("rows", rows(5))).id;
      const { version_id } = await server.platform.db
        .updateTable("dataset_versions")
        .set({ status: "processing" })
        .where("dataset_id", "=", id)
        .returning("id as version_id")
        .executeTakeFirstOrThrow();
      // As if the process had died with the job in its hands.
      await sql`update pgboss.job set state = 'active', completed_on = null, heartbeat_on = now() where id = ${version_id}`.execute(
        server.platform.db,
      );
    }
    await using server = await startTestServer(place);
    await until(async () => {
      const version = await server.platform.db
        .selectFrom("dataset_versions")
        .select("status")
        .where("dataset_id", "=", id)
        .executeTakeFirstOrThrow();
      return version.status === "uploaded";
    });
  } finally {
    await rm(dataFolder, { recursive: true, force: true, maxRetries: 5 });
  }
});
