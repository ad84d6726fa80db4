import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { CHECKOUT } from "./command.ts";

export type RolloutChild = AsyncDisposable & { readonly url: string; readonly token: string };

/** The template's multiply rollout as a child process, with the SDK of this checkout. */
export function startTemplateRollout(): Promise<RolloutChild> {
  return startRollout(join(CHECKOUT, "templates/workspace/rollouts/multiply-local-openai/main.ts"));
}

/** A rollout server as a child process. */
export async function startRollout(
  main: string,
  environment: Readonly<Record<string, string>> = {},
): Promise<RolloutChild> {
  const token = randomUUID();
  const child = spawn(process.execPath, [main], {
    env: {
      PATH: process.env["PATH"],
      _OSMOSIS_ROLLOUT_PORT: "0",
      _OSMOSIS_ROLLOUT_SERVER_TOKEN: token,
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = once(child, "exit");
  const said: string[] = [];
  const url = await new Promise<string>((resolve, reject) => {
    for (const input of [child.stdout, child.stderr]) {
      createInterface({ input }).on("line", (line) => {
        said.push(line);
        const match = /Rollout server on (\S+?):? /.exec(line);
        if (match?.[1] !== undefined) resolve(match[1]);
      });
    }
    void ended.then(() => reject(new Error(`the rollout server ended: ${said.join("\n")}`)));
  });
  return {
    url,
    token,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}
