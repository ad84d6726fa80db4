import { spawn } from "node:child_process";
import { errorMessage } from "@osmosis/protocol";

/** Runs a program to its end. @throws {Error} with the end of its output when it fails. */
export async function runProgram(
  program: string,
  args: readonly string[],
  { folder, environment }: { folder: string; environment: Readonly<Record<string, string>> },
): Promise<void> {
  const child = spawn(program, args, {
    cwd: folder,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...environment },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output = (output + text).slice(-4000);
    });
  }
  const exitCode = await new Promise<number | null>((resolve, reject) => {
    child.once("error", (error) => reject(new Error(`${program} cannot be run: ${errorMessage(error)}`)));
    child.once("close", resolve);
  });
  if (exitCode !== 0) throw new Error(`${program} ${args[0] ?? ""} failed: ${output.trim()}`);
}
