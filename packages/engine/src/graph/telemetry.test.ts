import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";

const TINY_AGENT = fileURLToPath(new URL("../../models/tiny-agent", import.meta.url));

/** A session in a worker thread, as every run has it, and one in the main thread, as `model download --merge` has it. */
const PROGRAMS = {
  "in a worker thread": `
    const { createEmbeddedService } = await import(process.argv[1] + "../embedded/service.ts");
    await using service = createEmbeddedService({ threads: 1 });
    await using model = await service.createModel({ folder: process.argv[2] }, { method: { type: "full" }, seed: 1 });`,
  "in the main thread": `
    const { GraphBuilder } = await import(process.argv[1] + "builder.ts");
    const { loadRuntime } = await import(process.argv[1] + "session.ts");
    const graph = new GraphBuilder();
    graph.output("y", graph.reshape(graph.input("x", ["A", "B"]), ["B", "A"]));
    await (await (await loadRuntime({ threads: 1 })).createSession(graph.build())).release();`,
};

let home = "";

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "osmosis-telemetry-"));
});

afterEach(() => rm(home, { recursive: true }));

test.each(Object.entries(PROGRAMS))(
  "onnxruntime keeps no record of a session %s to send",
  async (_, program) => {
    // Only what finds files, so that no variable of the machine silences the library: it asks for those of CI systems, too.
    const env = { HOME: home, PATH: process.env["PATH"] ?? "" };
    const engine = new URL(".", import.meta.url).href;
    await promisify(execFile)(
      process.execPath,
      ["--input-type=module", "--eval", program, engine, TINY_AGENT],
      { env },
    );
    expect(await readdir(home, { recursive: true })).toEqual([]);
  },
);
