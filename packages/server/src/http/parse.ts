import { OsmosisError } from "@osmosis/protocol";
import type { Context } from "hono";
import type { z } from "zod";

/**
 * The JSON body of a request, checked.
 *
 * @throws {OsmosisError} VALIDATION with `field` and `issues` naming each place.
 */
export async function parseBody<T>(c: Context, schema: z.ZodType<T>): Promise<T> {
  const text = await c.req.text();
  let json: unknown;
  try {
    json = text === "" ? {} : JSON.parse(text);
  } catch {
    throw new OsmosisError("VALIDATION", "The request body is not JSON.", { hint: "Send a JSON object." });
  }
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
