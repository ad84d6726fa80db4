import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { runInProcess } from "../test/io.ts";

const ROOT = join(import.meta.dirname, "../../..");

/** What people and coding agents read to learn the commands. */
const PAGES = [
  "README.md",
  "AGENTS.md",
  "CONTRIBUTING.md",
  ...["docs", "templates", "packages"].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
      .filter((path) => path.endsWith(".md") && !/node_modules|\.claude/.test(path))
      .map((path) => join(folder, path)),
  ),
];

/** The help of each command by its path: `train submit`. */
const helps = new Map<string, string>();

async function helpOf(words: readonly string[]): Promise<string> {
  const { code, stdout } = await runInProcess([...words, "--help"], { cwd: ROOT });
  expect([words, code]).toEqual([words, 0]);
  return stdout;
}

function childrenOf(help: string): string[] {
  const [, list = ""] = help.split("\nCommands:\n");
  return [...(list.split("\n\n")[0] ?? "").matchAll(/^ {2}([a-z]\S*)/gm)].flatMap(([, name]) =>
    name === undefined || name === "help" ? [] : [name],
  );
}

beforeAll(async () => {
  const waiting: string[][] = [[]];
  for (let words = waiting.shift(); words !== undefined; words = waiting.shift()) {
    const help = await helpOf(words);
    helps.set(words.join(" "), help);
    for (const child of childrenOf(help)) waiting.push([...words, child]);
  }
});

test("every command shows examples of itself", () => {
  const works = [...helps].filter(([path, help]) => path !== "" && childrenOf(help).length === 0);
  expect(works.length).toBeGreaterThan(40);
  for (const [path, help] of works) expect(help, path).toContain(`$ osmosis ${path}`);
});

describe("every command that a page names exists, with the options that it names", () => {
  test.each(PAGES)("%s", (page) => {
    for (const line of commandsIn(readFileSync(join(ROOT, page), "utf8"))) {
      const words = line.split(/\s+/).slice(1);
      const path: string[] = [];
      for (const word of words.filter((one) => one !== "--json")) {
        if (!helps.has([...path, word].join(" "))) break;
        path.push(word);
      }
      const help = helps.get(path.join(" ")) ?? "";
      const next = words.filter((one) => one !== "--json")[path.length] ?? "";
      // A group by itself may be spoken of; a word after it that is no command of it may not.
      const isCommand = childrenOf(help).length === 0 || !/^[a-z]/.test(next);
      expect(isCommand, `${page}: ${line}`).toBe(true);
      for (const option of words.filter((word) => /^--?[a-z]/.test(word))) {
        expect(help.split("\nExamples:")[0], `${page}: ${line}`).toMatch(
          new RegExp(`^ +(-\\w, )?${option}\\b|^ +${option},`, "m"),
        );
      }
    }
  });
});

/** Commands between backticks and in blocks of code, up to a comment, a pipe or the next command. */
function commandsIn(text: string): string[] {
  const blocks = [...text.matchAll(/^```.*?\n(.*?)^```/gms)].flatMap(([, code]) => code?.split("\n") ?? []);
  const inline = [...text.replaceAll(/^```.*?^```/gms, "").matchAll(/`([^`\n]+)`/g)].flatMap(
    ([, code]) => code ?? [],
  );
  return [...blocks, ...inline]
    .flatMap((code) => code.split(/ # | {2,}|\||&&|;/))
    .map((code) => code.trim())
    .filter((code) => code.startsWith("osmosis "));
}
