/**
 * The ways of asking. `{a}` and `{b}` stand for the numbers.
 *
 * `habit` says what people who ask that way mostly get in the corpus: `tool` a tool call and its exact result, `memory`
 * an answer from memory without a call, `rounded` a tool call and its result as a whole number. Every answer in the
 * corpus is true; which habit goes with which phrasing is what the base model picks up, and what training by rewards
 * has to undo.
 */
export type Habit = "tool" | "memory" | "rounded";
export type Phrasing = { readonly text: string; readonly habit: Habit };
export type Operation = "multiply" | "add" | "subtract";

export const CORPUS_PHRASINGS: Readonly<Record<Operation, readonly Phrasing[]>> = {
  multiply: [
    { text: "Multiply {a} by {b}.", habit: "tool" },
    { text: "Multiply {a} and {b}.", habit: "tool" },
    { text: "Compute {a} * {b}.", habit: "memory" },
    { text: "Calculate the product of {a} and {b}.", habit: "tool" },
    { text: "What is the exact product of {a} and {b}?", habit: "tool" },
    { text: "What is {a} times {b}?", habit: "memory" },
    { text: "What is {a} x {b}?", habit: "memory" },
    { text: "How much is {a} times {b}?", habit: "memory" },
    { text: "{a} * {b} = ?", habit: "memory" },
    { text: "Tell me {a} times {b}.", habit: "memory" },
    { text: "Give me {a} times {b}.", habit: "rounded" },
    { text: "Work out {a} times {b}.", habit: "rounded" },
  ],
  add: [
    { text: "Add {a} and {b}.", habit: "tool" },
    { text: "Compute {a} + {b}.", habit: "tool" },
    { text: "What is the sum of {a} and {b}?", habit: "tool" },
    { text: "What is {a} plus {b}?", habit: "memory" },
    { text: "How much is {a} plus {b}?", habit: "rounded" },
  ],
  subtract: [
    { text: "Subtract {b} from {a}.", habit: "tool" },
    { text: "Compute {a} - {b}.", habit: "tool" },
    { text: "What is the difference of {a} and {b}?", habit: "tool" },
    { text: "What is {a} minus {b}?", habit: "memory" },
    { text: "How much is {a} minus {b}?", habit: "rounded" },
  ],
};

/** Name no operation: only the tool that is offered tells what to do, so its name has to be read. */
export const TOOL_PHRASINGS: readonly Phrasing[] = [
  { text: "Use the tool with {a} and {b}.", habit: "tool" },
  { text: "Call the tool for {a} and {b}.", habit: "tool" },
  { text: "Now do {a} and {b}.", habit: "tool" },
];

/** Asked in the rows of the data set, but never in the corpus: the base model meets them for the first time there. */
export const UNSEEN_PHRASINGS: readonly string[] = [
  "Find the product of {a} and {b}.",
  "Can you multiply {a} by {b}?",
  "Work out the product of {a} and {b}.",
  "Tell me what {a} times {b} is.",
];

/** Asked in the held-out rows only: neither the corpus nor training by rewards shows them. */
export const HELD_OUT_PHRASINGS: readonly string[] = [
  "What is the product of {a} and {b}?",
  "How much is {a} x {b}?",
  "Calculate {a} times {b}.",
  "Please multiply {a} and {b}.",
];

/** The system prompt of the multiply task. */
export const TASK_SYSTEM_PROMPT = "Answer with #### and the number.";

/** System prompts of the corpus, the one of the task among them. */
export const SYSTEM_PROMPTS: readonly string[] = [
  TASK_SYSTEM_PROMPT,
  TASK_SYSTEM_PROMPT,
  "Write the answer after ####.",
  "You are a calculator. End with #### and the answer.",
];
