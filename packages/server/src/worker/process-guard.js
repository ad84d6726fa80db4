// Runs a command in a process group of its own and ends the whole group when this process's stdin closes, which happens
// even when the parent is killed without a chance to clean up. Plain JavaScript, so that it starts fast.
import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";

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

/** Kills what came of the command and left its group, as a child does that is started detached. */
function killStrays() {
  const mark = `_OSMOSIS_GUARD_ID=${process.env._OSMOSIS_GUARD_ID}\0`;
  // Once more for what was started meanwhile; a stray that starts others without end is not worth more.
  for (let round = 0; round < 3; round++) {
    const strays = processes().filter((pid) => pid !== process.pid && environmentOf(pid).includes(mark));
    if (strays.length === 0) return;
    for (const pid of strays) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It is gone already.
      }
    }
  }
}

function processes() {
  try {
    return readdirSync("/proc").map(Number).filter(Number.isInteger);
  } catch {
    return []; // Only Linux tells the environments of processes.
  }
}

function environmentOf(pid) {
  try {
    return `${readFileSync(`/proc/${pid}/environ`, "latin1")}\0`;
  } catch {
    return ""; // It ended meanwhile, or is somebody else's.
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
  killStrays();
  process.exitCode = code ?? (signal === "SIGKILL" ? 137 : 143);
  process.exit();
});
