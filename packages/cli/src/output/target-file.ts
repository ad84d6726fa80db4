import { stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { OsmosisError } from "@osmosis/protocol";

/**
 * Where a command writes its file: as `-o` says, inside a folder under its own name, by default here.
 *
 * @throws OsmosisError `CONFLICT` for a file that is there and may not be replaced; `VALIDATION` for what is no file, such as
 * a device or a pipe: the finished file would take its place.
 */
export async function targetFile(
  cwd: string,
  given: { readonly output?: string | undefined; readonly fileName: string; readonly overwrite: boolean },
): Promise<string> {
  const { output, fileName, overwrite } = given;
  const named = output === undefined ? join(cwd, fileName) : resolve(cwd, output);
  const isFolder = output?.endsWith("/") === true || (await kindOf(named)) === "folder";
  const path = output !== undefined && isFolder ? join(named, fileName) : named;
  const kind = await kindOf(path);
  if (kind === undefined || (kind === "file" && overwrite)) return path;
  if (kind === "file") {
    throw new OsmosisError("CONFLICT", `${path} exists.`, {
      hint: "Add --overwrite, or name another file with -o.",
    });
  }
  throw new OsmosisError("VALIDATION", `${path} is not a file, and would be replaced by one.`, {
    hint: "Name a file or a folder with -o.",
  });
}

async function kindOf(path: string): Promise<"file" | "folder" | "other" | undefined> {
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) return undefined;
  if (found.isFile()) return "file";
  return found.isDirectory() ? "folder" : "other";
}
