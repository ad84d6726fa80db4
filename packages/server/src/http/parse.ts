import { OsmosisError } from "@osmosis/protocol";
import type { Context } from "hono";
import type { z } from "zod";
import { refuseDeepNesting } from "./nesting.ts";
import { readText } from "./read-text.ts";

const USER_BODY_BYTES = 8 * 1024 ** 2;
const WORKER_BODY_BYTES = 512 * 1024 ** 2;

/**
 * The JSON body of a request of a user, checked; of 8 MiB at most, and with texts only that every part can keep.
 *
 * @throws {OsmosisError} VALIDATION with `field` and `issues` naming each place.
 * @throws {HTTPException} 413 for a longer body.
 */
export async function parseBody<T>(c: Context, schema: z.ZodType<T>): Promise<T> {
  const json = parseJson(await readText(c.req.raw, USER_BODY_BYTES));
  refuseDeepNesting(json);
  refuseBrokenText(json);
  return parse(schema, json);
}

/** {@link parseBody} for workers, who bring what models and programs have said, whatever it is. */
export async function parseWorkerBody<T>(c: Context, schema: z.ZodType<T>): Promise<T> {
  // A worker that was paused in the middle of it goes on.
  const json = parseJson(await readText(c.req.raw, WORKER_BODY_BYTES, null));
  refuseDeepNesting(json);
  return parse(schema, json);
}

/** The query string of a request, checked; every value arrives as a string. */
export function parseQuery<T>(c: Context, schema: z.ZodType<T>): T {
  return parse(schema, c.req.query());
}

/** `value` as `T`, or a VALIDATION error that names each place. */
export function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues.map((issue) => ({ key: issue.path.join("."), message: issue.message }));
  const first = issues[0];
  const where = first === undefined || first.key === "" ? "" : `${first.key}: `;
  throw new OsmosisError(
    "VALIDATION",
    `The request is not valid: ${where}${first?.message ?? "unknown reason"}.`,
    {
      details: { issues, ...(first === undefined || first.key === "" ? {} : { field: first.key }) },
    },
  );
}

function parseJson(text: string): unknown {
  try {
    return text === "" ? {} : JSON.parse(text);
  } catch {
    throw new OsmosisError("VALIDATION", "The request body is not JSON.", { hint: "Send a JSON object." });
  }
}

/** Neither the database nor a program's environment takes NUL, and half a surrogate pair is changed on its way. */
function refuseBrokenText(json: unknown): void {
  const waiting: { readonly value: unknown; readonly path: string }[] = [{ value: json, path: "" }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { value, path } = next;
    if (typeof value === "string") refuseBrokenString(value, path);
    if (typeof value !== "object" || value === null) continue;
    for (const [key, inner] of Object.entries(value)) {
      refuseBrokenString(key, path);
      waiting.push({ value: inner, path: path === "" ? key : `${path}.${key}` });
    }
  }
}

function refuseBrokenString(text: string, path: string): void {
  const what = text.includes("\0")
    ? "a NUL character"
    : text.isWellFormed()
      ? undefined
      : "half of a surrogate pair";
  if (what === undefined) return;
  const message = `holds ${what}, which cannot be kept`;
  throw new OsmosisError(
    "VALIDATION",
    `The request is not valid: ${path === "" ? "a text" : path} ${message}.`,
    {
      hint: "Remove it, and send the request again.",
      details: { issues: [{ key: path, message }], ...(path === "" ? {} : { field: path }) },
    },
  );
}
