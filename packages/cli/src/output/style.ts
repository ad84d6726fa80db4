import picocolors from "picocolors";

/** Colours and emphasis; the identity when the stream is no terminal or colours are not wanted. */
export type Style = {
  readonly bold: (text: string) => string;
  readonly dim: (text: string) => string;
  readonly red: (text: string) => string;
  readonly green: (text: string) => string;
  readonly yellow: (text: string) => string;
  readonly cyan: (text: string) => string;
};

/** Colours are for terminals that have them: `NO_COLOR` and `TERM=dumb` switch them off, `FORCE_COLOR=1` on. */
export function createStyle(isTerminal: boolean, env: Readonly<Record<string, string | undefined>>): Style {
  const wanted = (isTerminal || env["FORCE_COLOR"] === "1") && !env["NO_COLOR"] && env["TERM"] !== "dumb";
  return picocolors.createColors(wanted);
}

/** Text from elsewhere, fit for a terminal: no control character can move the cursor or fake a line. */
export function printable(text: string): string {
  // oxlint-disable-next-line no-control-regex -- they are what is taken out
  return text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "�");
}

/** Columns that a text takes; colour sequences take none. */
export function displayWidth(text: string): number {
  // oxlint-disable-next-line no-control-regex -- the beginning of a colour sequence
  return Array.from(text.replaceAll(/\u001b\[[0-9;]*m/g, "")).length;
}
