/** The two kinds of run, by the name of their command. */
export type RunKind = "eval" | "train";

export const RUN_WORD: Readonly<Record<RunKind, string>> = { eval: "evaluation run", train: "training run" };
