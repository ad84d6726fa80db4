import type { ReactElement } from "react";
import { turnsOf, type Turn } from "./turns.ts";

/** Messages from top to bottom, tool calls and their results where they happened. */
export function Conversation(props: {
  readonly messages: readonly Readonly<Record<string, unknown>>[];
}): ReactElement {
  const turns = turnsOf(props.messages);
  if (turns.length === 0) return <p className="waiting">The rollout left no messages.</p>;
  return (
    <ol className="conversation">
      {turns.map((turn, index) => (
        // The order of a finished conversation is all the identity that its turns have.
        <li key={index} className={`turn turn-${turn.role}`}>
          <TurnView turn={turn} />
        </li>
      ))}
    </ol>
  );
}

function TurnView({ turn }: { readonly turn: Turn }): ReactElement {
  return (
    <>
      <span className="role">{turn.role}</span>
      {turn.text === "" ? null : <pre className="text">{turn.text}</pre>}
      {turn.calls.map((call) => (
        <pre key={call.id} className="call">
          {call.name}({call.argumentsText})
        </pre>
      ))}
    </>
  );
}
