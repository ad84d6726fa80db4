#!/usr/bin/env node
// Plain JavaScript for any Node from 18 on: it answers `--version` at once, finds a Node that runs TypeScript, and
// hands over to src/main.ts.
import { existsSync, readFileSync, realpathSync } from "node:fs";
import * as nodeModule from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(realpathSync(fileURLToPath(import.meta.url)));
const first = process.argv[2];

if (process.argv.length === 3 && (first === "--version" || first === "-V")) {
  const { version } = JSON.parse(readFileSync(join(here, "../package.json"), "utf8"));
  process.stdout.write(`osmosis ${version}\n`);
} else if (stripsTypes(process.versions.node)) {
  nodeModule.enableCompileCache?.();
  silenceTypeStripping();
  await import("../src/main.ts");
} else {
  await runWithBundledNode();
}

function stripsTypes(version) {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > 23 || (major === 23 && minor >= 6) || (major === 22 && minor >= 18);
}

/** Node 22 and 23 announce type stripping as experimental on every start; a user can do nothing about it. */
function silenceTypeStripping() {
  if (Number.parseInt(process.versions.node, 10) >= 24) return;
  const emit = process.emitWarning.bind(process);
  process.emitWarning = (warning, ...rest) => {
    if (!String(warning).includes("Type Stripping")) emit(warning, ...rest);
  };
}

/** The Node that `npm ci` installed beside this package, from the nearest node_modules upwards. */
function bundledNode() {
  const name = process.platform === "win32" ? "node.exe" : "node";
  for (let folder = here; ; folder = dirname(folder)) {
    const candidate = join(folder, "node_modules/.bin", name);
    if (existsSync(candidate)) return candidate;
    if (dirname(folder) === folder) return undefined;
  }
}

async function runWithBundledNode() {
  const node = bundledNode();
  if (node === undefined || realpathSync(node) === realpathSync(process.execPath)) {
    process.stderr.write(
      `Error: osmosis needs Node 22.18 or newer; this is ${process.version}.\n` +
        "Install Node 24, or run `npm ci` in the source checkout, which brings its own.\n",
    );
    process.exitCode = 1;
    return;
  }
  const { spawn } = await import("node:child_process");
  // A terminal sends Ctrl-C to both processes; this one only has to outlive the other. A signal that was sent to this
  // process alone is passed on. Listening begins before the start, so that no moment is left for a signal to end this
  // process alone; the listeners run afterwards.
  const forward = (signal) => {
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, forward);
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: "inherit" });
  child.on("error", (error) => {
    process.stderr.write(`Error: cannot start ${node}: ${error.message}\n`);
    process.exit(1);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.removeListener(name, forward);
    process.kill(process.pid, signal);
  });
}
