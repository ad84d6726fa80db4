import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, join, posix, relative, resolve } from "node:path";
import { expect, test } from "vitest";

/**
 * The rules that keep the house habitable: one direction of imports, no cycles, small files, names that say something,
 * the outside world only at the edges, and a project that speaks of itself only.
 */

const root = resolve(import.meta.dirname, "..");

/** What each package may import beside itself. Everything else is a broken layer. */
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  engine: ["protocol"],
  controller: ["engine", "protocol"],
  sdk: ["protocol"],
  server: ["controller", "engine", "protocol"],
  cli: ["sdk", "controller", "protocol"],
  web: ["protocol"],
};

const REFUSED_NAMES = new Set([
  "utils",
  "helpers",
  "common",
  "shared",
  "misc",
  "core",
  "manager",
  "util",
  "helper",
]);

/** Files of a package that may touch the process, the clock, chance and the console themselves. */
const EDGE_FILES = /\/(?:io|config|main|worker-thread|thread)\.tsx?$|\/worker\/main\.ts$/;

const tracked = execFileSync("git", ["ls-files", "-co", "--exclude-standard"], {
  cwd: root,
  encoding: "utf8",
})
  .split("\n")
  // A file that was deleted but not committed yet is still listed.
  .filter((path) => path !== "" && existsSync(join(root, path)));

const sources = tracked
  .filter((path) => /^packages\/[^/]+\/src\/.*\.tsx?$/.test(path))
  .map((path) => ({ path, text: readFileSync(join(root, path), "utf8") }));

/** Tests, and what only tests use. The SDK's `testing` entry is none of these: it is for users. */
const isTest = (path: string): boolean =>
  /\.test\.tsx?$|\/test\//.test(path) || (/\/testing(?:\/.*)?\.ts$/.test(path) && packageOf(path) !== "sdk");
const packageOf = (path: string): string => path.split("/")[1] ?? "";

/** Module names that a source imports or re-exports, comments and strings aside. */
function importsOf(text: string): string[] {
  const pattern =
    /(?:^|\n)\s*(?:import|export)\b[^;'"]*?from\s*["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']\s*\)|(?:^|\n)\s*import\s*["']([^"']+)["']/g;
  return [...text.matchAll(pattern)].map((match) => match[1] ?? match[2] ?? match[3] ?? "");
}

test("the sources are seen", () => {
  expect(sources.length).toBeGreaterThan(80);
  expect(new Set(sources.map(({ path }) => packageOf(path)))).toEqual(new Set(Object.keys(LAYERS)));
});

test("packages import along the layers only", () => {
  const broken = sources.flatMap(({ path, text }) => {
    const own = packageOf(path);
    return importsOf(text)
      .filter((name) => name.startsWith("@osmosis/"))
      .map((name) => name.split("/")[1] ?? "")
      .filter((name) => name !== own && !(LAYERS[own] ?? []).includes(name))
      .map((name) => `${path} imports @osmosis/${name}`);
  });
  expect(broken).toEqual([]);
});

test("inside a package imports are relative, and never leave it", () => {
  const broken = sources.flatMap(({ path, text }) => {
    const own = packageOf(path);
    return importsOf(text)
      .filter((name) =>
        name.startsWith(".")
          ? !posix.join(posix.dirname(path), name).startsWith(`packages/${own}/`)
          : name === `@osmosis/${own}` && !isTest(path),
      )
      .map((name) => `${path} imports ${name}`);
  });
  expect(broken).toEqual([]);
});

test("no file imports itself over others", () => {
  const graph = new Map(
    sources
      .filter(({ path }) => !isTest(path))
      .map(({ path, text }) => [
        path,
        // Types vanish at run time, so a cycle of types alone is no cycle.
        importsOf(text.replaceAll(/(?:^|\n)\s*(?:import|export)\s+type\b[^;]*;/g, "\n"))
          .filter((name) => name.startsWith("."))
          .map((name) => posix.join(posix.dirname(path), name)),
      ]),
  );
  expect(cyclesOf(graph)).toEqual([]);
});

/** One cycle per strongly connected knot, as a readable chain. */
function cyclesOf(graph: ReadonlyMap<string, readonly string[]>): string[] {
  const state = new Map<string, "open" | "done">();
  const cycles: string[] = [];
  const visit = (path: string, chain: readonly string[]): void => {
    if (state.get(path) === "done") return;
    if (state.get(path) === "open") {
      cycles.push([...chain.slice(chain.indexOf(path)), path].join(" → "));
      return;
    }
    state.set(path, "open");
    for (const next of graph.get(path) ?? []) visit(next, [...chain, path]);
    state.set(path, "done");
  };
  for (const path of graph.keys()) visit(path, []);
  return cycles;
}

test("every failure of the command line says what to do next", () => {
  const silent = sources
    .filter(({ path }) => packageOf(path) === "cli" && !isTest(path))
    .flatMap(({ path, text }) =>
      text
        .split("new OsmosisError(")
        .slice(1)
        .filter((rest) => !argumentsOf(rest).includes("hint"))
        .map((rest) => `${path}: ${rest.slice(0, 60).replaceAll(/\s+/g, " ")}`),
    );
  expect(silent).toEqual([]);
});

/** The text up to the parenthesis that closes the one before it. */
function argumentsOf(text: string): string {
  let depth = 1;
  for (const { 0: parenthesis, index } of text.matchAll(/[()]/g)) {
    depth += parenthesis === "(" ? 1 : -1;
    if (depth === 0) return text.slice(0, index);
  }
  return text;
}

test("files have at most 400 lines, tests 600", () => {
  const long = sources
    .map(({ path, text }) => ({ path, lines: text.split("\n").length - 1 }))
    .filter(({ path, lines }) => lines > (isTest(path) ? 600 : 400))
    .map(({ path, lines }) => `${path}: ${lines}`);
  expect(long).toEqual([]);
});

test("no file or folder is named for what it is not", () => {
  const bad = tracked.filter((path) =>
    path.split("/").some((part) => REFUSED_NAMES.has(basename(part).replace(/(?:\.test)?\.[a-z]+$/, ""))),
  );
  expect(bad).toEqual([]);
});

test("files are named in kebab-case", () => {
  const bad = sources.filter(
    ({ path }) => !/^[a-z0-9]+(?:-[a-z0-9]+)*(?:\.[a-z0-9]+)*\.tsx?$/.test(basename(path)),
  );
  expect(bad.map(({ path }) => path)).toEqual([]);
});

test("the world enters at the edges: environment, console, chance", () => {
  const bad = sources
    .filter(({ path }) => !isTest(path) && !EDGE_FILES.test(path) && packageOf(path) !== "web")
    .flatMap(({ path, text }) =>
      [/\bprocess\.(?:env|exit|argv|stdout|stderr)\b/, /\bconsole\./, /\bMath\.random\(/].flatMap((pattern) =>
        pattern.test(withoutComments(text)) ? [`${path}: ${pattern.source}`] : [],
      ),
    );
  expect(bad).toEqual([]);
});

function withoutComments(text: string): string {
  return text.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/(^|\s)\/\/.*$/gm, "$1");
}

test("only the index of a package is a barrel", () => {
  const barrels = sources
    .filter(
      ({ path, text }) =>
        basename(path) !== "index.ts" && /^(?:\s*export [^;]*from[^;]*;\s*)+$/.test(withoutComments(text)),
    )
    .map(({ path }) => path);
  expect(barrels).toEqual([]);
});

test("every package's manifest names what its sources import", () => {
  const missing = Object.keys(LAYERS).flatMap((name) => {
    const manifest: unknown = JSON.parse(readFileSync(join(root, "packages", name, "package.json"), "utf8"));
    const declared = declaredIn(manifest);
    return sources
      .filter(({ path }) => packageOf(path) === name && !isTest(path))
      .flatMap(({ path, text }) =>
        importsOf(text)
          .filter((module) => !module.startsWith(".") && !module.startsWith("node:"))
          .map((module) =>
            module
              .split("/")
              .slice(0, module.startsWith("@") ? 2 : 1)
              .join("/"),
          )
          .filter((module) => !declared.has(module))
          .map((module) => `${path} imports ${module}`),
      );
  });
  expect(missing).toEqual([]);
});

function declaredIn(manifest: unknown): Set<string> {
  const sections = ["dependencies", "devDependencies", "peerDependencies", "optionalDependencies"];
  const record = manifest as Record<string, Record<string, string> | undefined>;
  return new Set(sections.flatMap((section) => Object.keys(record[section] ?? {})));
}

test("the project speaks of itself only", () => {
  const foreign = [
    // Built from parts, so that this file does not contain what it looks for.
    new RegExp(["registry", "npmjs"].join("\\."), "i"),
    new RegExp(["/work", "main"].join("/")),
    new RegExp(["\\.\\.", "shared/"].join("/")),
    /\bissue #?\d+\b/i,
  ];
  const bad = tracked
    .filter(
      (path) =>
        /\.(?:tsx?|js|md|json|toml|ya?ml|sh|py)$|\.ci\/run$/.test(path) && !path.includes("/fixtures/"),
    )
    .flatMap((path) => {
      const text = readFileSync(join(root, path), "utf8");
      return foreign.filter((pattern) => pattern.test(text)).map((pattern) => `${path}: ${pattern.source}`);
    });
  expect(bad).toEqual([]);
});

test("links between documents lead somewhere", () => {
  const broken = tracked
    .filter((path) => path.endsWith(".md"))
    .flatMap((path) =>
      [...readFileSync(join(root, path), "utf8").matchAll(/\]\((?!https?:|#|mailto:)([^)#\s]+)/g)].flatMap(
        (match) => {
          const target = relative(root, resolve(root, dirname(path), match[1] ?? ""));
          const exists = tracked.some(
            (file) => file === target || file.startsWith(`${target.replace(/\/$/, "")}/`),
          );
          return exists ? [] : [`${path} → ${match[1]}`];
        },
      ),
    );
  expect(broken).toEqual([]);
});

test("no table of a document has a row twice", () => {
  const repeated = tracked
    .filter((path) => path.endsWith(".md"))
    .flatMap((path) =>
      readFileSync(join(root, path), "utf8")
        .split(/\n{2,}/)
        .flatMap((block) => {
          const rows = block.split("\n").filter((line) => line.startsWith("|"));
          return rows.filter((row, index) => rows.indexOf(row) < index).map((row) => `${path}: ${row}`);
        }),
    );
  expect(repeated).toEqual([]);
});
