import { expect, test } from "vitest";
import { identityOf } from "./identity.ts";

test.each([
  ["https://github.com/Acme/Agents.git", "acme/agents", "https://github.com"],
  ["http://127.0.0.1:7400/demo/workspace.git", "demo/workspace", "http://127.0.0.1:7400"],
  ["https://user:secret@git.example.com/group/sub/repo/", "sub/repo", "https://git.example.com"],
  ["git@github.com:acme/agents.git", "acme/agents", undefined],
  ["ssh://git@git.example.com:2222/acme/agents.git", "acme/agents", undefined],
  ["/srv/git/acme/agents.git", "acme/agents", undefined],
])("%s is %s", (remote, name, origin) => {
  expect(identityOf(remote)).toMatchObject({ name, origin });
});

test.each([
  [""],
  ["https://github.com/acme"],
  ["https://github.com/acme/a b"],
  ["https://github.com/acme/a%2Fb"],
])("%j is nobody", (remote) => {
  expect(identityOf(remote)).toBeUndefined();
});

test("a password in the remote is not shown", () => {
  expect(identityOf("https://user:secret@git.example.com/a/b.git")?.displayUrl).toBe(
    "https://git.example.com/a/b.git",
  );
});
