import { statSync } from "node:fs";
import { join } from "node:path";

/** Without these folders no workspace command works. */
export const REQUIRED_DIRECTORIES = ["rollouts", "configs/eval", "configs/training", "data"] as const;

/** What coding agents look for; only `doctor` asks for them. */
export const AGENT_FILES = ["AGENTS.md", "CLAUDE.md", "configs/AGENTS.md"] as const;

/** The required folders that are not there, or are no folders. */
export function missingDirectories(root: string): string[] {
  return REQUIRED_DIRECTORIES.filter(
    (path) => statSync(join(root, path), { throwIfNoEntry: false })?.isDirectory() !== true,
  );
}
