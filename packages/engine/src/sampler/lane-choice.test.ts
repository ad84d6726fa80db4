import { expect, test } from "vitest";
import { createLaneChoice } from "./lane-choice.ts";

const prompt = (first: number) => Array.from({ length: 100 }, (_, t) => first + t);

test("a conversation and a prompt go to the lane that knows them, others to the first with room", () => {
  const choice = createLaneChoice(2);
  for (let call = 0; call < 16; call++) expect(choice.take(`a${call}`, prompt(call))).toBe(0);
  expect(choice.take("b", prompt(1000))).toBe(1);
  choice.release(0);
  expect(choice.take("b", prompt(5))).toBe(1);
  expect(choice.take("c", prompt(1000))).toBe(1);
  expect(choice.take("d", prompt(15))).toBe(0);
});

test("a lane with much more to do than another does not keep its prompts", () => {
  const choice = createLaneChoice(2);
  for (let call = 0; call < 16; call++) choice.take(`a${call}`, prompt(1));
  expect(choice.take("other", prompt(1))).toBe(1);
});
