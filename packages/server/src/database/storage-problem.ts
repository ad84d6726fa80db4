import { OsmosisError, errorMessage } from "@osmosis/protocol";

/** What the operating system and Postgres say when a folder cannot be written: codes and, as a last resort, texts. */
const REMEDIES: readonly { test: RegExp; remedy: string }[] = [
  {
    test: /ENOSPC|EDQUOT|EFBIG|53100|no space left|quota/i,
    remedy: "Free some space, or choose another folder with --data.",
  },
  {
    test: /EROFS|read-only/i,
    remedy: "The file system is read-only: choose a folder that can be written with --data.",
  },
  {
    test: /EACCES|EPERM|permission denied/i,
    remedy: "This user may not write there: change the owner of the folder, or choose another with --data.",
  },
  {
    test: /ENOTDIR|EEXIST|ENOENT|ENAMETOOLONG/,
    remedy: "A part of this path is not a folder: choose another folder with --data.",
  },
];

/** The STORAGE error for a failure to write `folder`, or `undefined` when the failure has another cause. */
export function storageProblem(error: unknown, folder: string): OsmosisError | undefined {
  const text = failureText(error);
  const found = REMEDIES.find(({ test }) => test.test(text));
  if (found === undefined) return undefined;
  return new OsmosisError("STORAGE", `The data folder ${folder} cannot be written: ${errorMessage(error)}`, {
    hint: found.remedy,
    cause: error,
  });
}

function failureText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = "code" in error ? String(error.code) : "";
  const cause = error.cause === undefined ? "" : failureText(error.cause);
  return `${code} ${error.message} ${cause}`;
}
