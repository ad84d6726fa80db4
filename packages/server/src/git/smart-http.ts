import { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import { Hono, type Context } from "hono";
import type { User } from "../features/accounts/service.ts";
import type { WorkspaceAccess } from "../features/workspaces/service.ts";
import type { Platform } from "../platform.ts";
import type { GitProcess } from "./run-git.ts";

type Service = "git-upload-pack" | "git-receive-pack";

/**
 * Git's smart HTTP protocol below `/<owner>/<repo>.git`: clone, fetch and push with the user's token as the password of
 * HTTP Basic; the user name does not matter. Bodies are streams in both directions. A push is answered after its
 * branches were synced, so whoever pushes and then asks sees what was pushed.
 */
export function gitRoutes(platform: Platform): Hono {
  const app = new Hono();

  app.use("/:owner/:repo{.+\\.git}/*", async (c, next) => {
    await next();
    c.header("Cache-Control", "no-cache, max-age=0, must-revalidate");
  });

  app.get("/:owner/:repo{.+\\.git}/info/refs", async (c) => {
    const service = serviceOf(c.req.query("service"));
    if (service === undefined) return c.text("This server speaks the smart HTTP protocol only.\n", 403);
    const found = await authorize(platform, c);
    if (found instanceof Response) return found;
    const child = start(platform, c, { service, workspace: found, advertise: true });
    child.stdin.end();
    const isVersion2 = service === "git-upload-pack" && protocolOf(c)?.includes("version=2") === true;
    const prefix = isVersion2 ? "" : `${packetLine(`# service=${service}\n`)}0000`;
    return stream(platform, { child, prefix, type: `application/x-${service}-advertisement` });
  });

  app.post("/:owner/:repo{.+\\.git}/:service{git-(upload|receive)-pack}", async (c) => {
    const service = serviceOf(c.req.param("service"));
    if (service === undefined) return c.text("There is no such service.\n", 404);
    const found = await authorize(platform, c);
    if (found instanceof Response) return found;
    const child = start(platform, c, { service, workspace: found, advertise: false });
    feed(c, child);
    const afterwards =
      service === "git-receive-pack" ? () => syncOrLog(platform, found) : () => Promise.resolve();
    return stream(platform, { child, prefix: "", type: `application/x-${service}-result`, afterwards });
  });

  return app;
}

/** The workspace that a request may use, or the answer that refuses it in the form that Git shows to its user. */
async function authorize(platform: Platform, c: Context): Promise<WorkspaceAccess | Response> {
  const owner = c.req.param("owner") ?? "";
  const repo = (c.req.param("repo") ?? "").replace(/\.git$/, "");
  let user: User;
  try {
    user = await platform.accounts.userOfToken(passwordOf(c.req.header("authorization")));
  } catch (error) {
    if (!(error instanceof OsmosisError)) throw error;
    return c.text(`${error.message} Use a token of \`osmosis auth login\` as the password.\n`, 401, {
      "WWW-Authenticate": 'Basic realm="Osmosis", charset="UTF-8"',
    });
  }
  try {
    const found = await platform.workspaces.accessByRepository(user.id, `${owner}/${repo}`.toLowerCase());
    await platform.repositories.check(found.id);
    return found;
  } catch (error) {
    if (!(error instanceof OsmosisError)) throw error;
    if (error.code === "STORAGE") return c.text(`${error.message}\n${error.hint ?? ""}\n`, 507);
    return c.text(`${error.message}\n`, error.code === "FORBIDDEN" ? 403 : 404);
  }
}

function passwordOf(header: string | undefined): string {
  const [scheme = "", value = ""] = (header ?? "").trim().split(/\s+/, 2);
  if (scheme.toLowerCase() === "bearer") return value;
  if (scheme.toLowerCase() !== "basic") return "";
  const text = Buffer.from(value, "base64").toString("utf8");
  return text.slice(text.indexOf(":") + 1);
}

function start(
  platform: Platform,
  c: Context,
  wanted: { service: Service; workspace: WorkspaceAccess; advertise: boolean },
): GitProcess {
  const args = [
    wanted.service.slice("git-".length),
    "--stateless-rpc",
    ...(wanted.advertise ? ["--advertise-refs"] : []),
    ".",
  ];
  const protocol = protocolOf(c);
  return platform.git.start(args, {
    folder: platform.repositories.pathOf(wanted.workspace.id),
    ...(protocol === undefined ? {} : { environment: { GIT_PROTOCOL: protocol } }),
    // A push that has arrived is finished even when its client is gone.
    ...(wanted.service === "git-upload-pack" ? { signal: c.req.raw.signal } : {}),
  });
}

/** What the client wishes to speak, if it is well-formed: it becomes an environment variable. */
function protocolOf(c: Context): string | undefined {
  const header = c.req.header("git-protocol");
  return header !== undefined && /^[a-z0-9=:.-]{1,100}$/i.test(header) ? header : undefined;
}

/** The push is in the repository whatever becomes of the sync, which the next push or start makes up for. */
async function syncOrLog(platform: Platform, workspace: WorkspaceAccess): Promise<void> {
  try {
    await platform.workspaces.sync(workspace.id);
  } catch (error) {
    platform.log({
      level: "error",
      message: `Syncing ${workspace.repository} failed: ${errorMessage(error)}`,
    });
  }
}

function feed(c: Context, child: GitProcess): void {
  const { body } = c.req.raw;
  if (body === null) {
    child.stdin.end();
    return;
  }
  // Node's and the DOM's declarations of the same web stream differ in name only.
  const bytes = Readable.fromWeb(body as Parameters<typeof Readable.fromWeb>[0]);
  const stop = () => child.stdin.destroy();
  bytes.on("error", stop);
  if (c.req.header("content-encoding") === "gzip") {
    bytes.pipe(createGunzip()).on("error", stop).pipe(child.stdin);
  } else {
    bytes.pipe(child.stdin);
  }
}

function stream(
  platform: Platform,
  parts: { child: GitProcess; prefix: string; type: string; afterwards?: () => Promise<void> },
): Response {
  const { child, afterwards = () => Promise.resolve() } = parts;
  async function* output(): AsyncGenerator<Uint8Array> {
    try {
      if (parts.prefix !== "") yield Buffer.from(parts.prefix);
      yield* child.stdout;
    } finally {
      // Also when the client hangs up in the middle: a push may have come through all the same.
      child.stdout.resume();
      const exitCode = await child.exitCode.catch(() => null);
      if (exitCode !== 0) {
        platform.log({ level: "warning", message: `git ended with ${exitCode}: ${await child.stderr}` });
      }
      await afterwards();
    }
  }

  // Node's and the DOM's declarations of the same web stream differ in name only.
  const body = Readable.toWeb(Readable.from(output(), { objectMode: false })) as ReadableStream<Uint8Array>;
  return new Response(body, {
    status: 200,
    headers: { "Content-Type": parts.type },
  });
}

function serviceOf(name: string | undefined): Service | undefined {
  return name === "git-upload-pack" || name === "git-receive-pack" ? name : undefined;
}

/** Git's framing: four hex digits that count themselves, then the text. */
function packetLine(text: string): string {
  return (text.length + 4).toString(16).padStart(4, "0") + text;
}
