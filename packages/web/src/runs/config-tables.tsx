import {
  CheckpointSettings,
  EvaluationAdvanced,
  EvaluationSettings,
  ExperimentConfig,
  SamplingSettings,
  TrainingAdvanced,
  TrainingSettings,
} from "@osmosis/protocol";
import type { ReactElement } from "react";

type Detail = {
  readonly config: Readonly<Record<string, unknown>>;
  readonly env_config: Readonly<Record<string, string>> | null;
  readonly resolved_secret_scopes: Readonly<Record<string, string>>;
  readonly commit_sha: string;
  readonly branch: string | null;
};

type Section = { readonly name: string; readonly entries: readonly (readonly [string, unknown])[] };

const TABLES = {
  eval: {
    experiment: ExperimentConfig,
    evaluation: EvaluationSettings,
    advanced: EvaluationAdvanced,
  },
  training: {
    experiment: ExperimentConfig,
    training: TrainingSettings,
    sampling: SamplingSettings,
    checkpoints: CheckpointSettings,
    advanced: TrainingAdvanced,
  },
};

/** What a run was submitted with, defaults included, in the tables of its configuration file; and the code that it ran. */
export function ConfigTables(props: {
  readonly kind: "eval" | "training";
  readonly detail: Detail;
}): ReactElement {
  return (
    <div className="config">
      {sectionsOf(props.kind, props.detail)
        .filter(({ entries }) => entries.length > 0)
        .map(({ name, entries }) => (
          <section key={name}>
            <h2>{name}</h2>
            <table>
              <tbody>
                {entries.map(([key, value]) => (
                  <tr key={key}>
                    <th scope="row">{key}</th>
                    <td>
                      <code dir="auto">{typeof value === "string" ? value : JSON.stringify(value)}</code>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
        ))}
    </div>
  );
}

/** The platform answers every setting by its key alone; no two tables share one. */
export function sectionsOf(kind: "eval" | "training", detail: Detail): Section[] {
  const left = new Map(Object.entries(detail.config));
  const sections = Object.entries(TABLES[kind]).map(([table, schema]): Section => {
    const entries = Object.keys(schema.shape)
      .filter((key) => left.has(key))
      .map((key) => [key, left.get(key)] as const);
    for (const [key] of entries) left.delete(key);
    return { name: `[${table}]`, entries };
  });
  return [
    {
      name: "Code",
      entries: [
        ["commit", detail.commit_sha],
        ...(detail.branch === null ? [] : [["branch", detail.branch] as const]),
      ],
    },
    ...sections,
    { name: "[env]", entries: Object.entries(detail.env_config ?? {}) },
    {
      name: "[secrets]",
      entries: Object.entries(detail.resolved_secret_scopes).map(
        ([name, scope]) => [name, `of the ${SCOPES[scope] ?? scope}`] as const,
      ),
    },
    { name: "Other", entries: [...left] },
  ];
}

const SCOPES: Readonly<Record<string, string>> = {
  workspace: "workspace",
  user: "person who submitted it",
  user_override: "person who submitted it, in place of the workspace's",
  run: "run alone",
};
