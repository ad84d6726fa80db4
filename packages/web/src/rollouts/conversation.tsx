import type { ReactElement } from "react";
import { LongText } from "../parts/long-text.tsx";
import { prettyArguments, turnsOf, type Turn } from "./turns.ts";

/** Messages from top to bottom, tool calls and their results where they happened. */
export function Conversation(props: {
  readonly messages: readonly Readonly<Record<string, unknown>>[];
}): ReactElement {
  const turns = turnsOf(props.messages);
  if (turns.length === 0) return <p className="empty">The rollout left no messages.</p>;
  return (
    <ol className="conversation" aria-label="Conversation">
      {turns.map((turn, index) => (
        // The order of a finished conversation is all the identity that its turns have.
        <li key={index} className={`turn turn-${KNOWN.has(turn.role) ? turn.role : "other"}`}>
          <TurnView turn={turn} />
        </li>
      ))}
    </ol>
  );
}

const KNOWN = new Set(["system", "developer", "user", "assistant", "tool"]);

function TurnView({ turn }: { readonly turn: Turn }): ReactElement {
  return (
    <>
      <p className="role">
        {turn.role === "tool" ? "tool result" : <bdi>{turn.role}</bdi>}
        {turn.tool === undefined ? null : (
          <>
            {" "}
            of <code>{turn.tool}</code>
          </>
        )}
      </p>
      {turn.text === "" ? null : <LongText className="text" text={turn.text} />}
      {turn.text === "" && turn.calls.length === 0 ? <p className="quiet">(empty)</p> : null}
      {turn.calls.map((call, position) => (
        <div key={`${call.id} ${position}`} className="call">
          <p className="role">
            calls <code>{call.name}</code>
          </p>
          <LongText className="text" text={prettyArguments(call.argumentsText)} />
        </div>
      ))}
    </>
  );
}
