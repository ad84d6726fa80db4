import { authRoutes, OsmosisError } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { formatTime } from "../output/format.ts";
import type { DetailResult } from "../output/result.ts";
import { openSession, platformClient } from "../platform/session.ts";
import { findWorkspace } from "../workspace/workspace.ts";

/** Who is signed in, as the platform sees it. Inside a workspace it also says which one; outside it is null. */
export async function whoami(context: Context): Promise<DetailResult> {
  const workspace = await findWorkspace(context);
  const session = await openSession(context, workspace?.identity);
  let answer;
  try {
    answer = await session.client.call(authRoutes.verify, {});
  } catch (error) {
    // A repository that the platform does not know must not hide who one is.
    const isAboutPerson = error instanceof OsmosisError && ["AUTH_REQUIRED", "NETWORK"].includes(error.code);
    if (workspace === undefined || isAboutPerson) throw error;
    const client = platformClient(context, session.platformUrl, { token: session.token });
    answer = await client.call(authRoutes.verify, {});
    context.warn(
      "WORKSPACE_NOT_CONNECTED",
      `${session.platformUrl} has no workspace of yours for ${workspace.identity.name}.`,
    );
  }
  const { user, expires_at: expiresAt, workspace: linked } = answer;
  return {
    kind: "detail",
    data: {
      account: user,
      email: user.email,
      name: user.name ?? null,
      expires_at: expiresAt ?? null,
      platform_url: session.platformUrl,
      source: session.source,
      effective_source: session.source,
      persistent_login: session.source === "login",
      workspace: linked ?? null,
    },
    title: user.email,
    fields: [
      ["Name", user.name ?? "–"],
      ["Platform", session.platformUrl],
      ["Token", session.source === "login" ? "saved login" : "OSMOSIS_TOKEN"],
      ["Expires", formatTime(expiresAt)],
      ["Workspace", linked ? `${linked.name} (${linked.role})` : "none here"],
    ],
  };
}
