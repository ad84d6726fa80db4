import { spawnSync } from "node:child_process";
import { access, chmod, mkdir, mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { allowsPython } from "./choose-python.ts";
import { childEnvironment } from "./environment.ts";
import { pythonFor } from "./python-environment.ts";
import { startRolloutProcess } from "./rollout-process.ts";

const canInstall =
  spawnSync("python3", ["-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 9))"]).status === 0;
if (!canInstall)
  process.stderr.write("Python rollouts are not tested: there is no python3 of 3.9 or later with venv.\n");

let folder: string;
let rollout: string;
beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), "osmosis-python-")));
  rollout = join(folder, "rollouts/toy");
  await mkdir(rollout, { recursive: true });
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** A project that builds itself, so that nothing is downloaded. */
const PROJECT = `[project]
name = "toy-rollout"
version = "1.2.3"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
`;

const BACKEND = `
import zipfile, os
def build_editable(folder, config_settings=None, metadata_directory=None):
    open("installed-with", "w").write(os.environ.get("PASSWORD", "no password"))
    info = "toy_rollout-1.2.3.dist-info"
    files = {
        "toy_rollout.pth": os.getcwd(),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: toy-rollout\\nVersion: 1.2.3\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: toy\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    with zipfile.ZipFile(os.path.join(folder, "toy_rollout-1.2.3-py3-none-any.whl"), "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\\n" for name in [*files, f"{info}/RECORD"]))
    return "toy_rollout-1.2.3-py3-none-any.whl"
`;

/** Says which distribution it found, on the two streams, and who it is. */
const MAIN = `
import http.server, importlib.metadata, json, os, sys
print("INFO:     Started", file=sys.stderr)
print("2026-01-02 03:04:05,678 ERROR toy: broken", file=sys.stderr)
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        body = {"status": "ok", "instance_id": os.environ["_OSMOSIS_ROLLOUT_INSTANCE_ID"],
                "password": os.environ["PASSWORD"],
                "version": importlib.metadata.version("toy-rollout")}
        self.wfile.write(json.dumps(body).encode())
http.server.HTTPServer(("127.0.0.1", int(os.environ["_OSMOSIS_ROLLOUT_PORT"])), Handler).serve_forever()
`;

const lines: string[] = [];
const request = (more: Readonly<Record<string, string>> = {}) => ({
  folder: rollout,
  environment: { ...childEnvironment(process.env), ...more },
  onLine: (line: string) => void lines.push(line),
  signal: new AbortController().signal,
});

test.skipIf(!canInstall)(
  "a Python rollout is started with what its pyproject.toml names, which is installed once",
  async () => {
    await writeFile(join(rollout, "pyproject.toml"), PROJECT);
    await writeFile(join(rollout, "backend.py"), BACKEND);
    await writeFile(join(rollout, "main.py"), MAIN);
    const said: string[] = [];
    const start = () =>
      startRolloutProcess({
        folder,
        rollout: "toy",
        entrypoint: "main.py",
        environment: childEnvironment(process.env),
        variables: { PASSWORD: "correct-horse", OSMOSIS_ROLLOUT_PYTHON: "/no/such/python" },
        artifactRoot: join(folder, "artifacts"),
        onLine: (line, stream) => void said.push(`${stream} ${line}`),
        timeouts: { startMs: 60_000, silenceMs: 60_000 },
        fetch,
        signal: new AbortController().signal,
      });
    {
      await using server = await start();
      expect(await (await fetch(`${server.url}/health`)).json()).toMatchObject({
        version: "1.2.3",
        password: "correct-horse",
      });
    }
    // What is installed is there for other runs of the commit, too.
    expect(await readFile(join(rollout, "installed-with"), "utf8")).toBe("no password");
    // The level that Python wrote before a line decides, not the stream.
    expect(said).toContain("stdout INFO:     Started");
    expect(said).toContain("stderr 2026-01-02 03:04:05,678 ERROR toy: broken");
    const installs = () => said.filter((line) => line.includes("pip install of")).length;
    expect(installs()).toBe(1);
    await using again = await start();
    expect((await fetch(`${again.url}/health`)).ok).toBe(true);
    expect(installs()).toBe(1);
  },
  120_000,
);

test.skipIf(!canInstall)(
  "what cannot be installed ends with the installer's words, and is tried again the next time",
  async () => {
    await writeFile(join(rollout, "pyproject.toml"), PROJECT);
    await writeFile(join(rollout, "backend.py"), `raise RuntimeError("the toy box is empty")`);
    await expect(pythonFor(request())).rejects.toMatchObject({
      code: "VALIDATION",
      message: expect.stringContaining(
        "The Python packages of toy-rollout could not be installed (exit code 1)",
      ),
      hint: expect.stringContaining("OSMOSIS_ROLLOUT_PYTHON"),
    });
    await expect(access(join(rollout, ".venv/.osmosis-ready"))).rejects.toThrow("ENOENT");
    expect(lines.join("\n")).toContain("the toy box is empty");
  },
  120_000,
);

test.skipIf(!canInstall)(
  "where python3 is none that the rollout allows, another on the PATH is taken, and without one the versions are named",
  async () => {
    // An old python3, a launcher without its version, and the machine's Python under a name of its own.
    const bin = join(folder, "bin");
    await mkdir(bin);
    const real = spawnSync("python3", ["-c", "import sys; print(sys.executable)"]).stdout.toString().trim();
    const place = async (name: string, script: string): Promise<void> => {
      await writeFile(join(bin, name), `#!/bin/sh\n${script}\n`);
      await chmod(join(bin, name), 0o755);
    };
    await place("python3", "echo 3.4.10");
    await place("python3.99", "exit 127");
    await writeFile(
      join(rollout, "pyproject.toml"),
      PROJECT.replace("[build-system]", 'requires-python = ">=3.9"\n[build-system]'),
    );
    await writeFile(join(rollout, "backend.py"), BACKEND);
    const here = { ...request({ PATH: bin }), worker: "lab-1" };
    await expect(pythonFor(here)).rejects.toMatchObject({
      code: "VALIDATION",
      message:
        "The rollout's pyproject.toml requires Python >=3.9, and worker lab-1 has Python 3.4.10 and no other that is allowed.",
      hint: expect.stringContaining("OSMOSIS_ROLLOUT_PYTHON"),
    });
    await expect(access(join(rollout, ".venv"))).rejects.toThrow("ENOENT");

    await place("python3.98", `exec ${real} "$@"`);
    expect(await pythonFor(here)).toBe(join(rollout, ".venv/bin/python"));
    expect(lines.at(-1)).toContain(join(bin, "python3.98"));
  },
  120_000,
);

test("a version specifier allows what it says, and what is not understood is left to pip", () => {
  const allowed = (specifier: string): string[] =>
    ["3.9.18", "3.11.7", "3.12.0", "3.13.1"].filter((version) => allowsPython(specifier, version));
  expect(allowed(">=3.12")).toEqual(["3.12.0", "3.13.1"]);
  expect(allowed(">3.11, <3.13")).toEqual(["3.11.7", "3.12.0"]);
  expect(allowed("~=3.11")).toEqual(["3.11.7", "3.12.0", "3.13.1"]);
  expect(allowed("~=3.11.2")).toEqual(["3.11.7"]);
  expect(allowed("==3.12.*")).toEqual(["3.12.0"]);
  expect(allowed("!=3.9.*,!=3.12")).toEqual(["3.11.7", "3.13.1"]);
  expect(allowed("<=3.12")).toEqual(["3.9.18", "3.11.7", "3.12.0"]);
  expect(allowed("like a snake")).toHaveLength(4);
});

test("the worker's own Python is taken as it is, and without pyproject.toml the machine's", async () => {
  expect(await pythonFor(request())).toBe("python3");
  await writeFile(join(rollout, "pyproject.toml"), PROJECT);
  expect(await pythonFor(request({ OSMOSIS_ROLLOUT_PYTHON: "/opt/with/everything" }))).toBe(
    "/opt/with/everything",
  );
  await expect(access(join(rollout, ".venv"))).rejects.toThrow("ENOENT");
});
