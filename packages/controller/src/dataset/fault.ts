/** One thing wrong with a data set's file: where it is, what it is, and what to do about it. */
export type DatasetFault = {
  /** Line of the file, from 1; 0 for the file as a whole. */
  readonly line: number;
  /** Column, key or path in the metadata; null for the whole line. */
  readonly column: string | null;
  readonly message: string;
  readonly hint: string;
};

/** How many faults are told in full; the others are only counted. */
export const MAX_FAULTS = 20;

/** Collects faults: the first {@link MAX_FAULTS} and the number of all. */
export class FaultList {
  readonly faults: DatasetFault[] = [];
  count = 0;

  add(fault: DatasetFault): void {
    this.count += 1;
    if (this.faults.length < MAX_FAULTS) this.faults.push(fault);
  }
}

/** The fault as one line of text: `line 3, user_prompt: is blank. Write the question …`. */
export function faultText({ line, column, message, hint }: DatasetFault): string {
  const place = [line === 0 ? [] : `line ${line}`, column === null ? [] : column].flat().join(", ");
  return `${place === "" ? "" : `${place}: `}${message}. ${hint}`;
}
