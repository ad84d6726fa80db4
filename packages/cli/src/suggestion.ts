import { closest } from "@osmosis/protocol";
import type { Command, CommanderError } from "commander";

/** Commands that people type from habit, and where they are here. */
const KNOWN_ELSEWHERE: Readonly<Record<string, string>> = {
  login: "auth login",
  logout: "auth logout",
  whoami: "auth whoami",
  init: "rollout init",
  deploy: "model list",
  start: "up",
  serve: "up",
};

/** What to do about a wrong call: one suggestion, else where the help is. */
export function suggest(error: CommanderError, program: Command, words: readonly string[]): string {
  let at = program;
  for (const word of words) {
    const next = at.commands.find((command) => command.name() === word);
    if (next === undefined) break;
    at = next;
  }
  const path = fullName(at);
  // A command that can do without a subcommand takes a mistyped one for an argument too many.
  const pattern = error.code === "commander.excessArguments" ? /but got \d+: ([^,]+)[,.]/ : /'([^']+)'/;
  const wrong = pattern.exec(error.message)?.[1] ?? "";
  if (error.code === "commander.unknownCommand" || error.code === "commander.excessArguments") {
    const names = at.commands.map((command) => command.name());
    const moved = at === program ? KNOWN_ELSEWHERE[wrong] : undefined;
    const close = closest(wrong, names);
    const better = moved ?? close;
    if (better !== undefined) return `Did you mean \`${path} ${better}\`?`;
  }
  if (error.code === "commander.unknownOption") {
    const flags = [at, program].flatMap((command) =>
      command.options.flatMap((option) =>
        option.long === undefined || option.long === null ? [] : [option.long],
      ),
    );
    const close = closest(wrong, flags);
    if (close !== undefined) return `Did you mean ${close}?`;
  }
  return `\`${path} --help\` shows how it is called.`;
}

function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
}
