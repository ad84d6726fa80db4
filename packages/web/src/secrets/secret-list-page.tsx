import { secretRoutes } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import type { ReactElement } from "react";
import { usePlace } from "../frame.tsx";
import { Age } from "../parts/age.tsx";
import { Empty } from "../parts/empty.tsx";
import { PAGE_SIZE } from "../parts/pager.tsx";
import { Unanswered } from "../problem.tsx";

const COMMAND = "osmosis secret set OPENAI_API_KEY";

/** Which secrets runs may use, and how to bring one. Values are never shown. */
export function SecretListPage(): ReactElement {
  const { workspace, client } = usePlace();
  const answer = useQuery({
    queryKey: [workspace.id, "secrets"],
    queryFn: ({ signal }) => client.call(secretRoutes.list, { query: { limit: PAGE_SIZE }, signal }),
  });
  return (
    <main>
      <title>Secrets · Osmosis</title>
      <h1>Secrets</h1>
      <p className="quiet">
        API keys and passwords that runs get as environment variables. They are stored encrypted and never
        shown; your own one comes before the workspace's of the same name.
      </p>
      {answer.data === undefined ? (
        <Unanswered query={answer} />
      ) : answer.data.total_count === 0 ? (
        <Empty what="No secret yet." where="In a clone of the workspace:" command={COMMAND} />
      ) : (
        <>
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>For</th>
                <th className="number">Set</th>
              </tr>
            </thead>
            <tbody>
              {answer.data.environment_secrets.map((secret) => (
                <tr key={secret.id}>
                  <td>
                    <code>{secret.name}</code>
                  </td>
                  <td>{secret.scope === "workspace" ? "the workspace" : "you alone"}</td>
                  <td className="number">
                    <Age at={secret.updated_at} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <p className="quiet">
            To set or replace one: <code>{COMMAND}</code>, with <code>--scope workspace</code> for everybody.
          </p>
        </>
      )}
    </main>
  );
}
