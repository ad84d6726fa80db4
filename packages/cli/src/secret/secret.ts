import { OsmosisError, SecretName, secretRoutes, type Client, type Secret } from "@osmosis/protocol";
import type { ListOptions } from "../commands/options.ts";
import { confirmOrRefuse } from "../confirm.ts";
import type { Context } from "../context.ts";
import { formatTime } from "../output/format.ts";
import { UsageError } from "../output/failure.ts";
import type { ListResult, OperationResult } from "../output/result.ts";
import { collectPages } from "../platform/pages.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";

/** A person says `personal`; the wire says `user`. */
const WIRE_SCOPE = { personal: "user", workspace: "workspace" } as const;
type Scope = keyof typeof WIRE_SCOPE;

export async function setSecret(
  context: Context,
  name: string,
  options: { readonly scope: string; readonly env?: string; readonly stdin?: boolean },
): Promise<OperationResult> {
  const scope = scopeOf(options.scope);
  const checked = SecretName.safeParse(name);
  if (!checked.success) {
    throw new OsmosisError(
      "VALIDATION",
      `${name} is not a secret's name: it ${checked.error.issues[0]?.message ?? ""}.`,
      {
        hint: "Names look like OPENAI_API_KEY.",
      },
    );
  }
  const { client, workspace } = await openWorkspaceSession(context);
  const value = await readValue(context, name, options);
  const secret = await client.call(secretRoutes.set, { body: { name, value, scope: WIRE_SCOPE[scope] } });
  return {
    kind: "operation",
    operation: "secret.set",
    status: "success",
    message: `Stored ${name} (${scope}).`,
    resource: secretRow(secret),
    extras: workspaceExtras(workspace),
  };
}

export async function listSecrets(
  context: Context,
  options: ListOptions & { readonly scope: string },
): Promise<ListResult> {
  const scope = options.scope === "all" ? "all" : WIRE_SCOPE[scopeOf(options.scope)];
  const { client, workspace } = await openWorkspaceSession(context);
  const { items, page } = await collectPages(options, async (query) => {
    const { environment_secrets: secrets, ...rest } = await client.call(secretRoutes.list, {
      query: { ...query, scope },
    });
    return { items: secrets, ...rest };
  });
  return {
    kind: "list",
    items: items.map(secretRow),
    page,
    table: {
      headers: ["NAME", "SCOPE", "UPDATED", "BY"],
      rows: items.map((secret) => [
        secret.name,
        personScope(secret),
        formatTime(secret.updated_at),
        secret.updater_name ?? secret.creator_name ?? "–",
      ]),
    },
    empty: "No secrets. Store one with `osmosis secret set NAME`.",
    extras: workspaceExtras(workspace),
  };
}

export async function deleteSecret(
  context: Context,
  name: string,
  options: { readonly scope: string; readonly yes?: boolean },
): Promise<OperationResult> {
  const scope = scopeOf(options.scope);
  const { client, workspace } = await openWorkspaceSession(context);
  const stored = (await storedSecrets(client)).filter((secret) => secret.name === name);
  if (!stored.some((secret) => secret.scope === WIRE_SCOPE[scope])) {
    const other = stored[0];
    throw new OsmosisError("NOT_FOUND", `There is no ${scope} secret named ${name}.`, {
      hint:
        other === undefined
          ? "`osmosis secret list` shows the names."
          : `There is one in the other scope: add --scope ${personScope(other)}.`,
    });
  }
  const isSure = await confirmOrRefuse(context, {
    isYes: options.yes === true,
    question: `Delete the ${scope} secret ${name}?`,
    preset: false,
    summary: { secret: name, scope },
  });
  if (isSure) await client.call(secretRoutes.delete, { body: { name, scope: WIRE_SCOPE[scope] } });
  return {
    kind: "operation",
    operation: "secret.delete",
    status: isSure ? "success" : "cancelled",
    message: isSure ? `Deleted ${name} (${scope}).` : "Cancelled.",
    resource: { name, scope },
    extras: workspaceExtras(workspace),
  };
}

/** Every secret that a run of this person may use; names only. */
export async function storedSecrets(client: Client): Promise<readonly Secret[]> {
  const { items } = await collectPages({ all: true }, async (query) => {
    const { environment_secrets: secrets, ...rest } = await client.call(secretRoutes.list, { query });
    return { items: secrets, ...rest };
  });
  return items;
}

/** Never from the command line's arguments: those are in the shell's history and in every process list. */
async function readValue(
  context: Context,
  name: string,
  options: { readonly env?: string; readonly stdin?: boolean },
): Promise<string> {
  if (options.env !== undefined) {
    const value = context.env[options.env];
    if (value) return value;
    throw new OsmosisError("VALIDATION", `The environment variable ${options.env} is empty or not set.`, {
      hint: `Set it, or leave --env out to be asked for ${name}.`,
    });
  }
  if (options.stdin === true) {
    const value = (await context.io.readStdin()).replace(/\r?\n$/, "");
    if (value !== "") return value;
    throw new OsmosisError("VALIDATION", "stdin was empty.", {
      hint: `Pipe the value of ${name} into the command.`,
    });
  }
  if (!context.interactive) {
    throw new OsmosisError("INTERACTIVE_REQUIRED", `There is nobody to ask for the value of ${name}.`, {
      hint: `Use --env VARIABLE or --stdin.`,
      details: { missing: [name], flags: ["--env", "--stdin"] },
    });
  }
  const value = await context.io.prompts.secret(`Value of ${name}`);
  if (value !== "") return value;
  throw new OsmosisError("VALIDATION", "The value is empty.", {
    hint: "Run the command again, and type a value; or use --env VARIABLE or --stdin.",
  });
}

function scopeOf(text: string): Scope {
  if (text === "personal" || text === "workspace") return text;
  throw new UsageError(`--scope ${text} is not a scope.`, "Use personal or workspace.");
}

function personScope(secret: Secret): Scope {
  return secret.scope === "user" ? "personal" : "workspace";
}

function secretRow(secret: Secret): Record<string, unknown> {
  return { ...secret, scope: personScope(secret) };
}
