/** The number after the last `####` of a text; undefined when there is none. The last, because text may quote the task. */
export function answerIn(text: string): number | undefined {
  const last = [...text.matchAll(/####\s*([-+]?\d+(?:\.\d+)?)/g)].at(-1)?.[1];
  return last === undefined ? undefined : Number(last);
}
