import type { ReactElement } from "react";

/** A run's configuration as it was submitted, section by section, with the code that it ran. */
export function ConfigTable(props: {
  readonly config: Readonly<Record<string, unknown>>;
  readonly facts: Readonly<Record<string, string>>;
}): ReactElement {
  const sections = Object.entries(props.config).filter(
    ([, value]) => typeof value === "object" && value !== null,
  );
  return (
    <div className="config">
      <Section name="code" entries={Object.entries(props.facts)} />
      {sections.map(([name, value]) => (
        <Section key={name} name={name} entries={Object.entries(value as Record<string, unknown>)} />
      ))}
    </div>
  );
}

function Section({
  name,
  entries,
}: {
  readonly name: string;
  readonly entries: readonly [string, unknown][];
}): ReactElement | null {
  if (entries.length === 0) return null;
  return (
    <section>
      <h2>{name}</h2>
      <table>
        <tbody>
          {entries.map(([key, value]) => (
            <tr key={key}>
              <th scope="row">{key}</th>
              <td>
                <code>{typeof value === "string" ? value : JSON.stringify(value)}</code>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
