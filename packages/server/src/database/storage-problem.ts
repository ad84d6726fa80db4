import { OsmosisError, errorMessage } from "@osmosis/protocol";

interface Remedy {
  test: RegExp;
  remedy: string;
}

/** What the operating system and Postgres say of a place that takes no more: codes, or texts of programs. */
const UNWRITABLE: readonly Remedy[] = [
  {
    test: /\b(ENOSPC|EDQUOT|EFBIG|53100)\b|no space left|quota exceeded/i,
    remedy: "Free some space, or choose another folder with --data.",
  },
  {
    test: /\bEROFS\b|read-only file system/i,
    remedy: "The file system is read-only: choose a folder that can be written with --data.",
  },
];

/** What they say of a path that is no place at all. */
const UNUSABLE: readonly Remedy[] = [
  {
    test: /\b(EACCES|EPERM)\b|permission denied/i,
    remedy: "This user may not write there: change the owner of the folder, or choose another with --data.",
  },
  {
    test: /\b(ENOTDIR|EEXIST|ENOENT|ENAMETOOLONG)\b/,
    remedy: "A part of this path is not a folder: choose another folder with --data.",
  },
];

/** The STORAGE error for anything that failed because `folder` takes no more bytes; `undefined` for other failures. */
export function fullStorage(error: unknown, folder: string): OsmosisError | undefined {
  return explain(error, folder, UNWRITABLE);
}

/** The STORAGE error for a failure to write `folder`, or `undefined` when the failure has another cause. */
export function storageProblem(error: unknown, folder: string): OsmosisError | undefined {
  return explain(error, folder, [...UNWRITABLE, ...UNUSABLE]);
}

function explain(error: unknown, folder: string, remedies: readonly Remedy[]): OsmosisError | undefined {
  const text = failureText(error);
  const found = remedies.find(({ test }) => test.test(text));
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
