import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { lockFolder } from "./folder-lock.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "osmosis-lock-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

test("a folder is held by one, and free when it has let go", async () => {
  const first = await lockFolder(folder);
  await expect(lockFolder(folder)).rejects.toMatchObject({
    code: "CONFLICT",
    message: `The data folder ${folder} is in use by process ${process.pid}.`,
  });
  await first[Symbol.asyncDispose]();
  await (await lockFolder(folder))[Symbol.asyncDispose]();
});

test.skipIf(!existsSync("/proc/self/stat"))(
  "a holder that is dead, but that its parent has not asked about, holds nothing",
  async () => {
    // The shell becomes `sleep`, which never asks about the child that it inherits.
    const parent = spawn("/bin/sh", ["-c", "sleep 0.1 & echo $!; exec sleep 60"], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    try {
      const [printed] = (await once(parent.stdout, "data")) as [Buffer];
      const pid = Number(printed.toString());
      const stat = async (): Promise<string[]> => (await readFile(`/proc/${pid}/stat`, "utf8")).split(" ");
      for (let tries = 0; tries < 200 && (await stat())[2] !== "Z"; tries += 1) await sleep(25);
      expect((await stat())[2]).toBe("Z");
      await writeFile(join(folder, "server.lock"), JSON.stringify({ pid, startedAt: (await stat())[21] }));
      await using lock = await lockFolder(folder);
      expect(lock).toBeDefined();
    } finally {
      parent.kill("SIGKILL");
    }
  },
);
