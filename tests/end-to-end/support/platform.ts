import { mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { authRoutes, createClient, workspaceRoutes, type Client } from "@osmosis/protocol";
import { personalEnvironment, runProgram, startOsmosis, type Ended, type RunningCommand } from "./command.ts";
import { nothingLeft, processesOf, type FoundProcess } from "./processes.ts";
import { until } from "./until.ts";

/**
 * A real platform on a folder of its own, held by the real `osmosis up`, with somebody signed in and a clone of their
 * workspace.
 */
export type TestPlatform = AsyncDisposable & {
  readonly url: string;
  readonly data: string;
  /** The clone. */
  readonly workspace: string;
  readonly env: Readonly<Record<string, string>>;
  /** Typed calls as the signed-in person, about the workspace. */
  readonly client: Client;
  /** Runs `osmosis` in the clone, whatever it ends with. */
  readonly osmosis: (...args: string[]) => Promise<Ended>;
  /** Runs `osmosis --json` in the clone, which must succeed, and answers its envelope. */
  readonly answerOf: (...args: string[]) => Promise<Record<string, unknown>>;
  readonly git: (...args: string[]) => Promise<string>;
  /** Commits everything in the clone and pushes it. */
  readonly push: (message: string) => Promise<void>;
  /** SIGKILL to one process of the platform. */
  readonly kill: (part: "server" | "worker" | "up") => Promise<FoundProcess>;
  /** The live process, if there is one. */
  readonly processOf: (part: "server" | "worker") => Promise<FoundProcess | undefined>;
  /** Starts `osmosis up` again on the same folder and port, after its end. */
  readonly startAgain: () => Promise<void>;
  /** What `osmosis up` said on stderr, all of it. */
  readonly said: () => string;
  /** Ctrl-C. Answers how `osmosis up` ended, once no process is left. */
  readonly stop: () => Promise<Ended>;
};

const MAIN = { server: "server/src/main.ts", worker: "server/src/worker/main.ts" };

export async function startTestPlatform(
  options: {
    readonly env?: Readonly<Record<string, string>>;
    /** The data folder; by default a new one. */
    readonly data?: string;
    /** For `osmosis up`, beside its own. */
    readonly args?: readonly string[];
  } = {},
): Promise<TestPlatform> {
  await using opened = new AsyncDisposableStack();
  // macOS reaches its temporary folder through a link; processes tell the real path.
  const home = await realpath(await mkdtemp(join(tmpdir(), "osmosis-e2e-")));
  opened.defer(() => rm(home, { recursive: true, force: true, maxRetries: 5 }));
  const env = personalEnvironment(home, options.env);
  const data = options.data ?? join(home, "data");
  const workspace = join(home, "workspace");
  const lives: RunningCommand[] = [];
  let up = startUp(0);
  opened.defer(async () => {
    up.kill("SIGTERM");
    await up.ended;
    await nothingLeft(data);
  });
  const url = await listening(up);
  const port = Number(new URL(url).port);

  await json(["auth", "login", "--local", "--data", data], home);
  await json(["workspace", "create", "demo", "--clone", workspace], home);

  const secret = (await readFile(join(data, "local-secret"), "utf8")).trim();
  const { token } = await createClient({ baseUrl: url, fetch }).call(authRoutes.localToken, {
    body: { secret, name: "test" },
  });
  const headers = { authorization: `Bearer ${token}` };
  const { workspaces } = await createClient({ baseUrl: url, fetch, headers: () => headers }).call(
    workspaceRoutes.list,
    {},
  );
  const repository = workspaces[0]?.connected_repo?.repo_full_name ?? "";
  const client = createClient({
    baseUrl: url,
    fetch,
    headers: () => ({ ...headers, "x-osmosis-git": repository }),
  });

  const git = (...args: string[]): Promise<string> => runProgram("git", args, { cwd: workspace, env });
  const processOf = async (part: "server" | "worker"): Promise<FoundProcess | undefined> =>
    (await processesOf(data)).find(({ command }) => command.includes(MAIN[part]));
  const resources = opened.move();
  return {
    url,
    data,
    workspace,
    env,
    client,
    git,
    osmosis: (...args) => startOsmosis(args, { cwd: workspace, env }).ended,
    answerOf: (...args) => json(args, workspace),
    async push(message) {
      await git("add", "-A");
      await git("commit", "-qm", message);
      await git("push", "-q");
    },
    processOf,
    async kill(part) {
      if (part === "up") {
        up.kill("SIGKILL");
        await up.ended;
        return { pid: up.pid, parent: process.pid, command: "osmosis up" };
      }
      const found = await processOf(part);
      if (found === undefined) throw new Error(`there is no ${part} to kill`);
      process.kill(found.pid, "SIGKILL");
      return found;
    },
    async startAgain() {
      up = startUp(port);
      await listening(up);
    },
    said: () => lives.map((life) => life.stderr()).join(""),
    async stop() {
      up.kill("SIGINT");
      const ended = await up.ended;
      await nothingLeft(data);
      return ended;
    },
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  };

  function startUp(onPort: number): RunningCommand {
    const args = ["up", "--data", data, "--port", String(onPort), "--json", ...(options.args ?? [])];
    const life = startOsmosis(args, { cwd: home, env });
    lives.push(life);
    return life;
  }

  async function json(args: readonly string[], cwd: string): Promise<Record<string, unknown>> {
    const ended = await startOsmosis([...args, "--json"], { cwd, env }).ended;
    if (ended.code !== 0) throw new Error(`osmosis ${args.join(" ")}: ${ended.stderr}\n${ended.stdout}`);
    // The command's own envelope.
    return JSON.parse(ended.stdout.trim().split("\n").at(-1) ?? "") as Record<string, unknown>;
  }
}

async function listening(up: RunningCommand): Promise<string> {
  let ended: Ended | undefined;
  void up.ended.then((how) => (ended = how));
  const line = await until("the platform listens", () => {
    if (ended !== undefined) throw new Error(`osmosis up ended with ${ended.code}: ${ended.stderr}`);
    return up.stdout().includes("\n") && up.stdout();
  });
  // The command's own envelope.
  return (JSON.parse(line) as { resource: { url: string } }).resource.url;
}
