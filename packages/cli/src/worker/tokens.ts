import { rm, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { OsmosisError, errorMessage, workersRoutes, type WorkerToken } from "@osmosis/protocol";
import { confirmOrRefuse } from "../confirm.ts";
import type { Context } from "../context.ts";
import { formatTime } from "../output/format.ts";
import { wholePage, type ListResult, type OperationResult } from "../output/result.ts";
import { openSession } from "../platform/session.ts";

/** Nobody can ask for the token again: it is printed, or in the file that was named. */
export async function createToken(
  context: Context,
  options: { readonly name: string; readonly saveTo?: string },
): Promise<OperationResult> {
  const { client, platformUrl } = await openSession(context);
  const file = options.saveTo === undefined ? undefined : resolve(context.io.cwd, options.saveTo);
  // Before there is a token that would be lost.
  if (file !== undefined) await reserve(file);
  const { token, ...created } = await client
    .call(workersRoutes.createToken, { body: { name: options.name } })
    .catch(async (error: unknown) => {
      if (file !== undefined) await rm(file, { force: true });
      throw error;
    });
  if (file !== undefined) await writeFile(file, `${token}\n`);
  return {
    kind: "operation",
    operation: "worker.token.create",
    status: "success",
    message: `Made the worker token ${created.name}. ${file === undefined ? "It is shown this once." : `It is in ${file}.`}`,
    fields: file === undefined ? [["Token", token]] : [],
    resource: { ...created, ...(file === undefined ? { token } : { file }) },
    nextSteps: [
      {
        command: `osmosis worker --platform ${platformUrl} --token-file ${options.saveTo ?? "FILE"}`,
        description: "on any machine that reaches the platform",
      },
      { command: `osmosis worker token revoke ${created.id}`, description: "end it" },
    ],
  };
}

/** @throws OsmosisError `CONFLICT` for a file that exists, `STORAGE` for one that cannot be written. */
async function reserve(file: string): Promise<void> {
  try {
    await writeFile(file, "", { mode: 0o600, flag: "wx" });
  } catch (error) {
    const exists = error instanceof Error && "code" in error && error.code === "EEXIST";
    throw new OsmosisError(
      exists ? "CONFLICT" : "STORAGE",
      exists ? `${file} exists.` : `${file} cannot be written: ${errorMessage(error)}.`,
      { hint: "Name another file." },
    );
  }
}

export async function listTokens(context: Context): Promise<ListResult> {
  const { client } = await openSession(context);
  const { tokens } = await client.call(workersRoutes.tokens, {});
  return {
    kind: "list",
    items: tokens,
    page: wholePage(tokens.length),
    table: {
      headers: ["NAME", "TOKEN", "CREATED", "LAST USED", "ID"],
      rows: tokens.map((token) => [
        token.name,
        `${token.prefix}…`,
        formatTime(token.created_at),
        token.last_used_at === null ? "never" : formatTime(token.last_used_at),
        token.id,
      ]),
    },
    empty: "No worker tokens. Make one with `osmosis worker token create`.",
  };
}

export async function revokeToken(
  context: Context,
  which: string,
  options: { readonly yes?: boolean },
): Promise<OperationResult> {
  const { client } = await openSession(context);
  const { tokens } = await client.call(workersRoutes.tokens, {});
  const token = findToken(tokens, which);
  const isSure = await confirmOrRefuse(context, {
    isYes: options.yes === true,
    question: `End the worker token ${token.name} (${token.prefix}…)? Its workers end.`,
    preset: false,
    summary: { token: token.name, id: token.id },
  });
  if (isSure) await client.call(workersRoutes.revokeToken, { params: { id: token.id } });
  return {
    kind: "operation",
    operation: "worker.token.revoke",
    status: isSure ? "success" : "cancelled",
    message: isSure ? `The worker token ${token.name} admits nobody any more.` : "Cancelled.",
    resource: { id: token.id, name: token.name },
  };
}

function findToken(tokens: readonly WorkerToken[], which: string): WorkerToken {
  const [found, ...others] = tokens.filter(({ id, name }) => id === which || name === which);
  if (found !== undefined && others.length === 0) return found;
  throw found === undefined
    ? new OsmosisError("NOT_FOUND", `There is no worker token with the name or id ${which}.`, {
        hint: "`osmosis worker token list` shows those that work.",
      })
    : new OsmosisError("CONFLICT", `${others.length + 1} worker tokens are named ${which}.`, {
        hint: "Name it by its id; `osmosis worker token list` shows them.",
      });
}
