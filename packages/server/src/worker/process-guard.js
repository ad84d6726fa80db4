// Runs a command in a process group of its own and ends the whole group when this process's stdin closes, which happens
// even when the parent is killed without a chance to clean up. Plain JavaScript, so that it starts fast.
import { spawn } from "node:child_process";

const [command, ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: ["ignore", "inherit", "inherit"], detached: true });

let ending = false;
function end() {
  if (ending) return;
  ending = true;
  signalGroup("SIGTERM");
  setTimeout(() => signalGroup("SIGKILL"), Number(process.env._OSMOSIS_GUARD_GRACE_MS ?? 3000)).unref();
}

function signalGroup(signal) {
  if (child.pid === undefined) return; // It never started.
  try {
    process.kill(-child.pid, signal);
  } catch {
    // The group is gone already.
  }
}

process.stdin.on("end", end).on("close", end).on("error", end).resume();
process.on("SIGTERM", end).on("SIGINT", end);
child.on("error", (error) => {
  process.stderr.write(`${error.message}\n`);
  process.exit(127);
});
child.on("exit", (code, signal) => {
  // Grandchildren that outlived the command are part of it.
  signalGroup("SIGKILL");
  process.exitCode = code ?? (signal === "SIGKILL" ? 137 : 143);
  process.exit();
});
