import { expect, test } from "vitest";
import { lineOfKey } from "./toml-position.ts";

const text = `# comment
[experiment]
rollout = "a"
"model_path" = "b"

[evaluation]   # the settings
n = 1
sub.key = 2

[secrets]
required = [
  "A",
]
`;

test.each([
  [["experiment"], 2],
  [["experiment", "rollout"], 3],
  [["experiment", "model_path"], 4],
  [["experiment", "dataset"], 2],
  [["evaluation", "n"], 7],
  [["evaluation", "sub", "key"], 8],
  [["secrets", "required", "0"], 11],
  [["training"], undefined],
])("%j is on line %s", (path, line) => {
  expect(lineOfKey(text, path)).toBe(line);
});
