import { evalRoutes, trainingRoutes, type RolloutSummary } from "@osmosis/protocol";
import type { RolloutsOptions } from "../commands/options.ts";
import type { Context } from "../context.ts";
import { formatCount, formatDuration, formatNumber } from "../output/format.ts";
import type { DetailResult, Field, ListResult } from "../output/result.ts";
import { collectPages } from "../platform/pages.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import type { RunKind } from "./kind.ts";

const ERROR_LENGTH = 60;

/** The rollouts of a run: those of the newest step first, inside a step by row. */
export async function listRollouts(
  context: Context,
  kind: RunKind,
  name: string,
  options: RolloutsOptions,
): Promise<ListResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const { outcome, step, phase } = options;
  const wanted = {
    ...(outcome === undefined ? {} : { outcome }),
    ...(step === undefined ? {} : { step }),
    ...(phase === undefined ? {} : { phase }),
  };
  const route = kind === "eval" ? evalRoutes.rollouts : trainingRoutes.rollouts;
  const { items, page } = await collectPages(options, async (query) => {
    const answer = await client.call(route, { params: { name }, query: { ...query, ...wanted } });
    const { rollouts, ...rest } = answer;
    return { items: rollouts, ...rest };
  });
  return {
    kind: "list",
    items,
    page,
    table: {
      headers: [...(kind === "train" ? ["STEP", "PHASE"] : []), "ROW", "OUTCOME", "REWARD", "ID", "ERROR"],
      rows: items.map((rollout) => [
        ...(kind === "train" ? [String(rollout.step), rollout.phase] : []),
        String(rollout.row_index),
        rollout.outcome,
        formatNumber(rollout.reward),
        shortId(rollout),
        shortened(rollout.error ?? ""),
      ]),
      numeric: ["STEP", "ROW", "REWARD"],
    },
    empty: "No rollouts of this kind.",
    extras: workspaceExtras(workspace),
  };
}

/** One rollout with its conversation: what the model was told, said and called. */
export async function readRollout(
  context: Context,
  kind: RunKind,
  name: string,
  id: string,
): Promise<DetailResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const route = kind === "eval" ? evalRoutes.rollout : trainingRoutes.rollout;
  const detail = await client.call(route, { params: { name, rollout_id: id } });
  return {
    kind: "detail",
    data: detail,
    title: id,
    fields: [
      ...factsOf(detail.rollout),
      ["Label", detail.label ?? "–"],
      ...Object.entries(detail.metrics).map(([metric, value]) => [metric, formatNumber(value)] as const),
      ...detail.messages.map((message) => [roleOf(message), textOf(message)] as const),
    ],
    extras: workspaceExtras(workspace),
  };
}

function factsOf(rollout: RolloutSummary): Field[] {
  return [
    ["Row", `${rollout.row_index}, attempt ${rollout.sample_index + 1}`],
    ["Outcome", rollout.error === null ? rollout.outcome : `${rollout.outcome}: ${rollout.error}`],
    ["Reward", formatNumber(rollout.reward)],
    ["Tokens", `${formatCount(rollout.prompt_tokens)} in, ${formatCount(rollout.completion_tokens)} out`],
    ["Time", formatDuration(rollout.duration_ms)],
    ["Model calls", formatCount(rollout.model_calls)],
  ];
}

function roleOf({ role }: Readonly<Record<string, unknown>>): string {
  return typeof role === "string" ? role : "message";
}

/** What a chat message says and calls; parts that are no text stand as JSON. */
function textOf(message: Readonly<Record<string, unknown>>): string {
  const { content, tool_calls: calls } = message;
  const said = typeof content === "string" ? content : content == null ? "" : JSON.stringify(content);
  const called = Array.isArray(calls) ? calls.map((call) => JSON.stringify(callOf(call))) : [];
  return [said, ...called].filter((part) => part !== "").join("\n");
}

function callOf(call: unknown): unknown {
  return typeof call === "object" && call !== null && "function" in call ? call.function : call;
}

/** What tells rollouts of a run apart: the run's own id, which they all begin with, only makes the list wide. */
function shortId({ id, phase }: RolloutSummary): string {
  return id.slice(Math.max(0, id.indexOf(`${phase}-s`)));
}

function shortened(text: string): string {
  return text.length <= ERROR_LENGTH ? text : `${text.slice(0, ERROR_LENGTH - 1)}…`;
}
