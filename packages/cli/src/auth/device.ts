import { spawn } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { authRoutes, OsmosisError, type Client } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import type { Login } from "../credentials/store.ts";

const LONGEST_WAIT_S = 900;
const SLOWEST_INTERVAL_S = 30;

/**
 * Signs in by a code that the person approves in a browser, on this machine or another. A dropped or slowed-down poll
 * does not end it; only a decision, or the code's end, does.
 */
export async function signInWithDevice(context: Context, client: Client): Promise<Login> {
  if (context.mode === "json") {
    throw new OsmosisError("INTERACTIVE_REQUIRED", "Signing in with the browser needs a person.", {
      hint: "Use `osmosis auth login --token -`, or set OSMOSIS_TOKEN.",
      details: { flags: ["--token"] },
    });
  }
  const { io } = context;
  const started = await client.call(authRoutes.authorizeDevice, { body: { deviceName: io.hostname } });
  const link = started.verification_uri_complete ?? started.verification_uri;
  io.stderr.write(`Open ${link}\nand check that it shows the code ${started.user_code}.\n`);
  if (context.interactive) openBrowser(context, link);

  const progress = context.progress();
  const deadline = io.now() + Math.min(LONGEST_WAIT_S, started.expires_in) * 1000;
  let intervalSeconds = Math.max(1, started.interval);
  progress.update({ label: "Waiting for your approval in the browser …" });
  try {
    while (io.now() < deadline) {
      await delay(intervalSeconds * 1000, undefined, { signal: io.interrupted });
      const poll = await pollOnce(client, started.device_code);
      if (poll.status === "approved") return poll.login;
      if (poll.status === "slow_down") intervalSeconds = Math.min(SLOWEST_INTERVAL_S, intervalSeconds + 5);
    }
  } finally {
    progress.stop();
  }
  throw new OsmosisError("AUTH_REQUIRED", "Nobody approved the code in time.", {
    hint: "Run `osmosis auth login` again.",
  });
}

type Poll =
  | { readonly status: "approved"; readonly login: Login }
  | { readonly status: "pending" | "slow_down" };

async function pollOnce(client: Client, deviceCode: string): Promise<Poll> {
  try {
    const answer = await client.call(authRoutes.pollDevice, { body: { device_code: deviceCode } });
    return {
      status: "approved",
      login: {
        platformUrl: client.baseUrl,
        token: answer.token,
        tokenId: answer.token_id ?? undefined,
        user: answer.user,
        expiresAt: answer.expires_at ?? undefined,
      },
    };
  } catch (error) {
    if (!(error instanceof OsmosisError)) throw error;
    if (error.message === "authorization_pending" || error.code === "NETWORK") return { status: "pending" };
    if (error.message === "slow_down" || error.code === "RATE_LIMITED") return { status: "slow_down" };
    const status = error.details?.["status_code"];
    if (typeof status === "number" && status >= 500) return { status: "pending" };
    if (error.message === "access_denied") {
      throw new OsmosisError("FORBIDDEN", "The sign-in was refused in the browser.", {
        hint: "If that was not meant, run `osmosis auth login` again, and approve it.",
        cause: error,
      });
    }
    if (error.message === "expired_token") {
      throw new OsmosisError("AUTH_REQUIRED", "The code has expired.", {
        hint: "Run `osmosis auth login` again.",
        cause: error,
      });
    }
    throw error;
  }
}

/** Best effort: the link is on the screen anyway. */
function openBrowser({ io, env }: Context, link: string): void {
  const hasDisplay = Boolean(env["DISPLAY"] || env["WAYLAND_DISPLAY"]);
  const opener =
    io.operatingSystem === "darwin"
      ? "open"
      : io.operatingSystem === "linux" && hasDisplay
        ? "xdg-open"
        : undefined;
  if (opener === undefined) return;
  const child = spawn(opener, [link], { stdio: "ignore", detached: true });
  child.on("error", () => {});
  child.unref();
}
