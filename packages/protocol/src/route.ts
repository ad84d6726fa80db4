import type { z } from "zod";
import { OsmosisError } from "./errors.ts";

/**
 * A route as data: the server mounts it, the client calls it, tests check answers against it. `path` holds `{name}`
 * for a parameter, which is one percent-encoded segment.
 */
export type Route<
  Query extends z.ZodType = z.ZodType,
  Body extends z.ZodType = z.ZodType,
  Answer extends z.ZodType = z.ZodType,
  Path extends string = string,
> = {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: Path;
  /** Who may call: anybody; a signed-in user; a member of the workspace named by the request; a worker. */
  readonly access: "public" | "user" | "workspace" | "worker";
  readonly query?: Query;
  readonly body?: Body;
  readonly response: Answer;
};

/** The names in braces of a path. */
export type PathParameters<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? Name | PathParameters<Rest>
  : never;

export function route<
  const Path extends string,
  Answer extends z.ZodType,
  Query extends z.ZodType = z.ZodUndefined,
  Body extends z.ZodType = z.ZodUndefined,
>(definition: Route<Query, Body, Answer, Path>): Route<Query, Body, Answer, Path> {
  return definition;
}

/**
 * Fills the parameters of a path, percent-encoded.
 *
 * @throws {OsmosisError} VALIDATION for an empty one, and for dots: with them the address would be that of something else.
 */
export function fillPath(path: string, parameters: Readonly<Record<string, string>>): string {
  return path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const value = parameters[name];
    if (value === undefined) throw new Error(`path ${path} lacks the parameter ${name}`);
    if (["", ".", ".."].includes(value)) {
      const what = name.replaceAll("_", " ");
      throw new OsmosisError(
        "VALIDATION",
        value === "" ? `The ${what} is empty.` : `"${value}" is no ${what}.`,
        {
          hint: "Give a name or an id, as the lists show it.",
        },
      );
    }
    return encodeURIComponent(value);
  });
}
