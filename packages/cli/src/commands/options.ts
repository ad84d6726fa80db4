import type { LogLevel, RolloutOutcome } from "@osmosis/protocol";
import { InvalidArgumentError } from "commander";

/** An option's whole number within bounds. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!Number.isInteger(value) || value < min || value > max) {
      throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
    }
    return value;
  };
}

export const examples = (...lines: string[]): string =>
  `\nExamples:\n${lines.map((line) => `  $ ${line}\n`).join("")}`;

/** Options of every list. */
export type ListOptions = { readonly limit?: number; readonly all?: boolean };

/** Which rollouts of a run; `step` and `phase` only of a training. */
export type RolloutsOptions = ListOptions & {
  readonly outcome?: RolloutOutcome;
  readonly step?: number;
  readonly phase?: "train" | "validation";
};

/** Options of every log. */
export type LogOptions = {
  readonly limit: number;
  readonly cursor?: string;
  readonly follow?: boolean;
  readonly level?: LogLevel;
  readonly source?: string;
};

/** Options of every submission. */
export type SubmitOptions = {
  readonly yes?: boolean;
  readonly secretsFile?: string;
  readonly model?: string;
  readonly wait?: boolean;
  readonly dryRun?: boolean;
};
