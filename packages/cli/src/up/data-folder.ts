import { readFile, rm, writeFile } from "node:fs/promises";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { z } from "zod";
import type { Context } from "../context.ts";

/** The checkout that this file lies in, when it is one and not an installed package. */
export function sourceCheckout(): string | undefined {
  const root = resolve(import.meta.dirname, "../../../..");
  const manifest = join(root, "package.json");
  if (!existsSync(manifest)) return undefined;
  const text = readFileSync(manifest, "utf8");
  return text.includes('"osmosis-monorepo"') ? root : undefined;
}

/** Makes `osmosis` a command of other shells; undefined where it is one already: it was not started by `npm run`. */
export function pathCommand(env: Context["env"]): string | undefined {
  const checkout = sourceCheckout();
  if (checkout === undefined || env["npm_lifecycle_event"] === undefined) return undefined;
  return `export PATH="${join(checkout, "node_modules/.bin")}:$PATH"`;
}

/** Where a platform on this machine keeps everything: the option, else `.osmosis` in a checkout, else the user's data. */
export function dataFolder(context: Context, option: string | undefined): string {
  if (option !== undefined) return resolve(context.io.cwd, option);
  const checkout = sourceCheckout();
  if (checkout !== undefined) return join(checkout, ".osmosis");
  const base = context.env["XDG_DATA_HOME"] || join(context.io.home, ".local/share");
  return join(base, "osmosis");
}

/** What `osmosis up` leaves in its data folder while it runs, for other commands to find it. */
const Running = z.object({ url: z.string(), pid: z.int(), started_at: z.string() });
export type Running = z.infer<typeof Running>;

const RUNNING_FILE = "running.json";

/** The platform that runs on the folder, as far as its file says; whether it answers is another question. */
export async function readRunning(folder: string): Promise<Running | undefined> {
  try {
    return Running.parse(JSON.parse(await readFile(join(folder, RUNNING_FILE), "utf8")));
  } catch {
    return undefined;
  }
}

export async function writeRunning(folder: string, running: Running): Promise<void> {
  await writeFile(join(folder, RUNNING_FILE), `${JSON.stringify(running)}\n`);
}

export async function removeRunning(folder: string): Promise<void> {
  await rm(join(folder, RUNNING_FILE), { force: true });
}

/** The secret by which the owner's programs on this machine sign in; undefined when it cannot be read. */
export async function readLocalSecret(folder: string): Promise<string | undefined> {
  try {
    return (await readFile(join(folder, "local-secret"), "utf8")).trim();
  } catch {
    return undefined;
  }
}
