import { analysisRoutes, type Diagnosis, type Finding } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { formatTime } from "../output/format.ts";
import type { DetailResult, Field, NextStep, Table } from "../output/result.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";

/** What the run doctor says about a training run. */
export async function diagnoseRun(context: Context, name: string): Promise<DetailResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const diagnosis = await client.call(analysisRoutes.doctor, { params: { name } });
  const nextSteps = diagnosis.findings.flatMap(({ rollouts }) => stepsTo(name, rollouts));
  return {
    kind: "detail",
    data: diagnosis,
    title: diagnosis.name,
    fields: [
      ["Status", `${diagnosis.status}, step ${diagnosis.latest_step}`],
      ["Checked", `${formatTime(diagnosis.checked_at)}, by ${diagnosis.rules.length} rules`],
      ["Found", verdict(diagnosis)],
      ...diagnosis.findings.map(fieldOf),
    ],
    ...(nextSteps.length === 0 ? {} : { nextSteps: nextSteps.slice(0, 3) }),
    extras: workspaceExtras(workspace),
  };
}

/** The findings as `train info` lists them; nothing for a run in which nothing was found. */
export function findingsTable({ name, findings }: Diagnosis): { title: string; table: Table }[] {
  if (findings.length === 0) return [];
  return [
    {
      title: `Findings (osmosis train doctor ${name} says what to do)`,
      table: {
        headers: ["SEVERITY", "RULE", "FINDING"],
        rows: findings.map(({ severity, rule, title }) => [severity, rule, title]),
      },
    },
  ];
}

function verdict({ findings, latest_step: step }: Diagnosis): string {
  const alarms = findings.filter(({ severity }) => severity === "alarm").length;
  if (alarms > 0) return `${counted(alarms, "alarm")}; advice comes when there is none`;
  if (findings.length > 0) return `no alarm, ${counted(findings.length, "piece")} of advice`;
  return step === 0 ? "no alarm; there is advice from the first step on" : "nothing";
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

function fieldOf({ severity, rule, title, evidence, steps, what_to_do: whatToDo }: Finding): Field {
  const where =
    steps === null
      ? ""
      : steps.first === steps.last
        ? ` (step ${steps.last})`
        : ` (steps ${steps.first} to ${steps.last})`;
  return [`${severity} ${rule}`, `${title}${where}.\n${evidence}\n${whatToDo}`];
}

function stepsTo(name: string, rollouts: Finding["rollouts"]): NextStep[] {
  return rollouts.slice(0, 1).map(({ id, outcome, step }) => ({
    command: `osmosis train rollouts ${name} ${id}`,
    description: `${outcome} in step ${step}`,
  }));
}
