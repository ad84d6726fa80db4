import { constants } from "node:fs";
import { copyFile, cp, lstat, mkdir, readdir, symlink, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { sourceCheckout } from "../up/data-folder.ts";
import { AGENT_FILES, missingDirectories } from "../workspace/layout.ts";
import { missingSkillLinks, skillTarget } from "./checks.ts";

/**
 * Makes the folders, agent files and skills that a workspace lacks, from the template. What exists is never touched.
 *
 * @returns what was made, relative to the workspace
 * @throws OsmosisError `CONFLICT` where a symbolic link is in the way: it may lead out of the workspace
 */
export async function fixWorkspace(context: Context, root: string): Promise<string[]> {
  const made: string[] = [];
  for (const path of missingDirectories(root)) {
    await refuseLinks(root, path);
    await mkdir(join(root, path), { recursive: true });
    await writeFile(join(root, path, ".gitkeep"), "", { flag: "wx" });
    made.push(`${path}/`);
  }
  const template = await templateFolder(context);
  if (template !== undefined) {
    for (const path of AGENT_FILES) {
      if (!(await exists(join(root, path))) && (await exists(join(template, path)))) {
        await refuseLinks(root, path);
        await mkdir(dirname(join(root, path)), { recursive: true });
        await copyFile(join(template, path), join(root, path), constants.COPYFILE_EXCL);
        made.push(path);
      }
    }
    made.push(...(await addSkills(root, template)));
  }
  for (const path of missingSkillLinks(root).missing) {
    await refuseLinks(root, dirname(path));
    await mkdir(join(root, dirname(path)), { recursive: true });
    await symlink(skillTarget(path.slice(path.lastIndexOf("/") + 1)), join(root, path));
    made.push(path);
  }
  return made;
}

async function addSkills(root: string, template: string): Promise<string[]> {
  const folder = ".agents/skills";
  const skills = await readdir(join(template, folder)).catch(() => []);
  // A workspace that has skills has chosen them; only one without any gets the template's.
  if (await exists(join(root, folder))) return [];
  await refuseLinks(root, folder);
  const made: string[] = [];
  for (const skill of skills) {
    await cp(join(template, folder, skill), join(root, folder, skill), {
      recursive: true,
      force: false,
      errorOnExist: true,
    });
    made.push(`${folder}/${skill}/`);
  }
  return made;
}

async function templateFolder({ env, io }: Context): Promise<string | undefined> {
  const told = env["OSMOSIS_WORKSPACE_TEMPLATE_PATH"];
  if (told) return resolve(io.cwd, told);
  const checkout = sourceCheckout();
  const folder = checkout === undefined ? undefined : join(checkout, "templates/workspace");
  return folder !== undefined && (await exists(folder)) ? folder : undefined;
}

async function refuseLinks(root: string, path: string): Promise<void> {
  let at = root;
  for (const part of path.split("/")) {
    at = join(at, part);
    const found = await lstat(at).catch(() => undefined);
    if (found?.isSymbolicLink() === true) {
      throw new OsmosisError(
        "CONFLICT",
        `${at} is a symbolic link; doctor writes only inside the workspace.`,
        {
          hint: "Replace the link by a folder, then run `osmosis doctor --fix` again.",
        },
      );
    }
  }
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => undefined)) !== undefined;
}
