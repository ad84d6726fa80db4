import assert from "node:assert/strict";
import { test } from "node:test";
import { rewardOf } from "./reward.ts";

void test("the right kind alone, in lower case, is worth 1", () => {
  assert.deepEqual(
    ["animal", " animal\n", "Animal", "animal."].map((answer) => rewardOf(answer, "animal")),
    [1, 1, 0.5, 0.5],
  );
});

void test("an answer that names the right kind among other words is worth less with each of them", () => {
  assert.equal(rewardOf("An owl is an animal.", "animal"), 0.1);
  assert.equal(rewardOf("It is an animal", "animal"), 0.125);
});

void test("another kind, two kinds, or none are worth nothing", () => {
  assert.deepEqual(
    ["plant", "animal or plant", "An owl is a bird.", ""].map((answer) => rewardOf(answer, "animal")),
    [0, 0, 0, 0],
  );
});
