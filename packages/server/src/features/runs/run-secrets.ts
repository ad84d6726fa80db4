import { OsmosisError } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Keys } from "../../keys.ts";
import { createSeal } from "../secrets/seal.ts";
import type { SecretOwner, Secrets, SecretSource } from "../secrets/service.ts";

type Place = { readonly runId: string; readonly name: string };

/** A value for one run only, encrypted. */
export function sealRunSecret(keys: Keys, place: Place, value: string): string {
  return createSeal(keys.derive("run-secrets")).close(value, contextOf(place));
}

/**
 * The values of a run's secrets, each from where it was found when the run was submitted.
 *
 * @throws {OsmosisError} NOT_FOUND when one was deleted since.
 */
export async function openRunSecrets(
  parts: { readonly db: Kysely<Tables>; readonly keys: Keys; readonly secrets: Secrets },
  run: SecretOwner & { readonly id: string; readonly sources: Readonly<Record<string, SecretSource>> },
): Promise<Record<string, string>> {
  const names = Object.keys(run.sources);
  const stored = await parts.secrets.valuesOf(
    run,
    names.filter((name) => run.sources[name] !== "run"),
  );
  const rows = await parts.db.selectFrom("run_secrets").selectAll().where("run_id", "=", run.id).execute();
  const seal = createSeal(parts.keys.derive("run-secrets"));
  const values = new Map([
    ...stored,
    ...rows.map(({ name, sealed }) => [name, seal.open(sealed, contextOf({ runId: run.id, name }))] as const),
  ]);
  const missing = names.filter((name) => !values.has(name));
  if (missing.length > 0) {
    throw new OsmosisError("NOT_FOUND", `Secret(s) not found: ${missing.join(", ")}`, {
      hint: "They were deleted after the run was submitted: set them again, and submit the run again.",
    });
  }
  return Object.fromEntries(values);
}

function contextOf({ runId, name }: Place): string {
  return JSON.stringify(["run-secret", runId, name]);
}
