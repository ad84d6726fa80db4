import assert from "node:assert/strict";
import { test } from "node:test";
import { answerIn } from "./answer.ts";
import { product } from "./tools.ts";

void test("the answer is the number after the last marker", () => {
  assert.deepEqual(
    ["#### 2.275", "as in #### 1, so\n#### -3.5", "####   42", "the answer is 7", "#### seven", ""].map(
      answerIn,
    ),
    [2.275, -3.5, 42, undefined, undefined, undefined],
  );
});

void test("products have four decimal places and no negative zero", () => {
  assert.deepEqual([product(-3.25, -0.7), product(0.1, 0.2), product(-1, 0)], [2.275, 0.02, 0]);
});
