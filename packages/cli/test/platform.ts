import { join } from "node:path";
import { runInProcess, type Ran, type RunOptions } from "./io.ts";
import { startCommand } from "./child.ts";
import { temporaryFolder } from "./folder.ts";
import { until } from "./until.ts";

/** A real platform without a worker, started by the real `osmosis up`, and somebody who is signed in there. */
export type TestPlatform = AsyncDisposable & {
  readonly url: string;
  readonly folder: string;
  /** Environment of the signed-in person. */
  readonly env: Readonly<Record<string, string>>;
  /** Runs a command as that person. */
  readonly run: (argv: readonly string[], options?: Partial<RunOptions>) => Promise<Ran>;
};

export async function startPlatform(): Promise<TestPlatform> {
  await using stack = new AsyncDisposableStack();
  const { path } = stack.use(await temporaryFolder());
  const data = join(path, "data");
  const up = startCommand(["up", "--data", data, "--port", "0", "--no-worker", "--json"], { cwd: path });
  stack.defer(async () => {
    up.kill("SIGTERM");
    await up.ended;
  });
  let hasEnded = false;
  void up.ended.then(() => (hasEnded = true));
  const line = await until(
    "the platform listens",
    () => {
      if (hasEnded) throw new Error(`osmosis up ended: ${up.stderr()}`);
      return up.stdout().includes("\n") && up.stdout();
    },
    100_000,
  );
  // Written by the command under test.
  const { url } = (JSON.parse(line) as { resource: { url: string } }).resource;
  const env = { XDG_CONFIG_HOME: join(path, "config"), OSMOSIS_PLATFORM_URL: url };
  const run: TestPlatform["run"] = (argv, options = {}) =>
    runInProcess(argv, { cwd: path, ...options, env: { ...env, ...options.env } });
  const login = await run(["auth", "login", "--local", "--data", data, "--json"]);
  if (login.code !== 0) throw new Error(login.stderr);
  const resources = stack.move();
  return { url, folder: path, env, run, [Symbol.asyncDispose]: () => resources.disposeAsync() };
}
