import { OsmosisError, trainerKeyRoutes, type TrainerKey } from "@osmosis/protocol";
import { confirmOrRefuse } from "../confirm.ts";
import type { Context } from "../context.ts";
import { formatTime } from "../output/format.ts";
import { wholePage, type ListResult, type OperationResult } from "../output/result.ts";
import { openSession } from "../platform/session.ts";

/** The key is part of what is printed: nobody can ask for it again. */
export async function createKey(
  context: Context,
  options: { readonly name: string; readonly days: number },
): Promise<OperationResult> {
  const { client } = await openSession(context);
  const { name, days } = options;
  const created = await client.call(trainerKeyRoutes.create, { body: { name, expires_in_days: days } });
  return {
    kind: "operation",
    operation: "trainer.key.create",
    status: "success",
    message: `Made the API key ${created.name}. It is shown this once.`,
    fields: [
      ["TINKER_API_KEY", created.api_key],
      ["TINKER_BASE_URL", created.base_url],
      ["Expires", formatTime(created.expires_at)],
    ],
    resource: created,
    nextSteps: [
      {
        command: `TINKER_BASE_URL=${created.base_url} TINKER_API_KEY=… python train.py`,
        description: "a program of the official SDK, unchanged",
      },
      { command: `osmosis trainer key revoke ${created.token_id}`, description: "end it" },
    ],
  };
}

export async function listKeys(context: Context): Promise<ListResult> {
  const { client } = await openSession(context);
  const { keys } = await client.call(trainerKeyRoutes.list, {});
  return {
    kind: "list",
    items: keys,
    page: wholePage(keys.length),
    table: {
      headers: ["NAME", "KEY", "CREATED", "EXPIRES", "LAST USED", "ID"],
      rows: keys.map((key) => [
        key.name,
        `${key.prefix}…`,
        formatTime(key.created_at),
        formatTime(key.expires_at),
        key.last_used_at === null ? "never" : formatTime(key.last_used_at),
        key.id,
      ]),
    },
    empty: "No API keys. Make one with `osmosis trainer key create`.",
  };
}

export async function revokeKey(
  context: Context,
  which: string,
  options: { readonly yes?: boolean },
): Promise<OperationResult> {
  const { client } = await openSession(context);
  const { keys } = await client.call(trainerKeyRoutes.list, {});
  const key = findKey(keys, which);
  const isSure = await confirmOrRefuse(context, {
    isYes: options.yes === true,
    question: `End the API key ${key.name} (${key.prefix}…)?`,
    preset: false,
    summary: { key: key.name, id: key.id },
  });
  if (isSure) await client.call(trainerKeyRoutes.revoke, { params: { key_id: key.id } });
  return {
    kind: "operation",
    operation: "trainer.key.revoke",
    status: isSure ? "success" : "cancelled",
    message: isSure ? `The API key ${key.name} opens nothing any more.` : "Cancelled.",
    resource: { id: key.id, name: key.name },
  };
}

function findKey(keys: readonly TrainerKey[], which: string): TrainerKey {
  const [found, ...others] = keys.filter(({ id, name }) => id === which || name === which);
  if (found !== undefined && others.length === 0) return found;
  throw found === undefined
    ? new OsmosisError("NOT_FOUND", `You have no API key with the name or id ${which}.`, {
        hint: "`osmosis trainer key list` shows those that work.",
      })
    : new OsmosisError("CONFLICT", `${others.length + 1} of your API keys are named ${which}.`, {
        hint: "Name it by its id; `osmosis trainer key list` shows them.",
      });
}
