import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { errorOf, lastJson } from "./io.ts";
import { startPlatform, type TestPlatform } from "./platform.ts";

const ENGINE = fileURLToPath(new URL("../../engine/", import.meta.url));

let platform: TestPlatform;
beforeAll(async () => {
  platform = await startPlatform();
}, 120_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

async function baseModels(): Promise<string[]> {
  const clone = join(platform.folder, "workspace");
  await platform.run(["workspace", "create", "models", "--clone", clone, "--json"]);
  const listed = await platform.run(["model", "list", "--type", "base", "--json"], { cwd: clone });
  // Written by the command under test.
  const { base_models } = lastJson(listed.stdout) as { base_models: { items: { model_name: string }[] } };
  return base_models.items.map((model) => model.model_name);
}

test("a GGUF file and a folder become base models, and what is there already is not sent again", async () => {
  const gguf = await platform.run([
    "model",
    "import",
    join(ENGINE, "fixtures/gguf/llama.gguf"),
    "--name",
    "my/tiny",
    "--json",
  ]);
  expect(gguf).toMatchObject({ code: 0, stderr: "" });
  expect(lastJson(gguf.stdout)).toMatchObject({
    operation: "model.import",
    status: "success",
    resource: { model_name: "my/tiny", parameters: 31_616 },
  });
  // Its files are those of osmosis/tiny-agent.
  const folder = await platform.run(["model", "import", join(ENGINE, "models/tiny-agent"), "--json"]);
  expect(lastJson(folder.stdout)).toMatchObject({
    resource: { model_name: "local/tiny-agent", sent_bytes: 0 },
  });
  expect(await baseModels()).toEqual(
    expect.arrayContaining(["local/tiny-agent", "my/tiny", "osmosis/tiny-agent"]),
  );
}, 60_000);

test("a folder of links, as the cache of a hub has, is imported with what they lead to", async () => {
  const links = join(platform.folder, "links");
  await mkdir(links);
  for (const name of await readdir(join(ENGINE, "models/tiny-agent"))) {
    await symlink(join(ENGINE, "models/tiny-agent", name), join(links, name));
  }
  const imported = await platform.run(["model", "import", links, "--name", "my/linked", "--json"]);
  expect(imported).toMatchObject({ code: 0, stderr: "" });
  expect(lastJson(imported.stdout)).toMatchObject({ resource: { model_name: "my/linked", sent_bytes: 0 } });
}, 60_000);

test("a name that is taken by another model is replaced with --overwrite only; the same model may be imported again", async () => {
  const importAs = (source: string) => [
    "model",
    "import",
    join(ENGINE, source),
    "--name",
    "my/twice",
    "--json",
  ];
  const same = importAs("models/tiny-agent");
  expect((await platform.run(same)).code).toBe(0);
  expect((await platform.run(same)).code).toBe(0);
  const other = importAs("fixtures/gguf/llama.gguf");
  const refused = await platform.run(other);
  expect(errorOf(refused)).toMatchObject({ code: "CONFLICT", hint: expect.stringContaining("--overwrite") });
  expect((await platform.run([...other, "--overwrite"])).code).toBe(0);
}, 60_000);

test("what is no model is refused here, with what is wrong", async () => {
  const broken = join(platform.folder, "broken");
  await cp(join(ENGINE, "models/tiny-agent"), broken, { recursive: true });
  await writeFile(join(broken, "config.json"), '{"model_type":"gemma4"}');
  expect(errorOf(await platform.run(["model", "import", broken, "--json"])).message).toContain(
    '"gemma4" is not supported',
  );
  const missing = await platform.run(["model", "import", join(platform.folder, "nowhere"), "--json"]);
  expect(errorOf(missing)).toMatchObject({ code: "NOT_FOUND" });
  const text = join(platform.folder, "notes.txt");
  await writeFile(text, "hello");
  expect(errorOf(await platform.run(["model", "import", text, "--json"])).message).toContain(
    "neither a folder nor a .gguf",
  );
  const empty = join(platform.folder, "empty");
  await mkdir(empty);
  expect(errorOf(await platform.run(["model", "import", empty, "--json"]))).toMatchObject({
    code: "NOT_FOUND",
    message: expect.stringContaining("config.json"),
  });
  await rm(join(broken, "model.safetensors"));
  await cp(join(ENGINE, "models/tiny-agent/config.json"), join(broken, "config.json"));
  expect(errorOf(await platform.run(["model", "import", broken, "--json"]))).toMatchObject({
    code: "NOT_FOUND",
    message: expect.stringContaining("model.safetensors"),
    hint: expect.stringContaining("--without-weights"),
  });
  const named = await platform.run(["model", "import", broken, "--name", "no owner", "--json"]);
  expect(named.code).toBe(2);
}, 60_000);

test("a model of any architecture is registered without weights, and shown as one that has none here", async () => {
  const folder = join(platform.folder, "weightless");
  await cp(join(ENGINE, "models/tiny-agent"), folder, { recursive: true });
  const config = await readFile(join(folder, "config.json"), "utf8");
  await writeFile(join(folder, "config.json"), config.replace('"llama"', '"gpt_oss"'));
  const importAs = (...more: string[]) =>
    platform.run(["model", "import", folder, "--name", "my/weightless", "--without-weights", ...more]);
  const shown = await importAs();
  expect(shown.stdout).toContain(
    "Registered my/weightless without weights: vocabulary 431, context 512; it is trained at a trainer by URL only.",
  );
  expect(lastJson((await importAs("--json")).stdout)).toMatchObject({
    resource: { model_name: "my/weightless", parameters: null, sent_bytes: 0 },
  });
  await baseModels();
  const cwd = join(platform.folder, "workspace");
  const list = await platform.run(["model", "list", "--type", "base"], { cwd });
  expect(list.stdout).toMatch(/my\/weightless\s+no weights here/);
  const info = await platform.run(["model", "info", "my/weightless"], { cwd });
  expect(info.stdout).toMatch(/Parameters\s+no weights here/);
  expect(info.stdout).toMatch(/Context\s+512 tokens/);
  const gguf = await platform.run(["model", "import", "some.gguf", "--without-weights", "--json"]);
  expect(gguf.code).toBe(2);
  expect(errorOf(gguf).hint).toContain("model pull OWNER/NAME --without-weights");
}, 60_000);
