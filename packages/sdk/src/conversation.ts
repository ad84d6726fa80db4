import type { ChatResponse, RawMessage, TrajectoryReport } from "@osmosis/protocol";
import type { SampleSource, SourcedSample } from "./rollout-context.ts";
import { messageText } from "./sample.ts";

type CallMetrics = { prompt_tokens: number; completion_tokens: number; cached_tokens?: number };

/**
 * The conversation of an execution, kept from its model calls: what the last call was sent, and what it answered. It is in
 * chat form whatever the agent framework's own form is, so a grader can read it without knowing the framework.
 */
export class Conversation implements SampleSource {
  readonly name: string;
  #messages: readonly RawMessage[] = [];
  readonly #answers = new Map<string, RawMessage>();
  readonly #calls: CallMetrics[] = [];

  constructor(name: string) {
    this.name = name;
  }

  /** Makes messages known that came from elsewhere, so that `restore` can put them back. */
  expect(messages: readonly RawMessage[]): void {
    for (const message of messages) {
      const key = answerKey(message);
      if (key !== undefined) this.#answers.set(key, message);
    }
  }

  /**
   * The history with every assistant message put back as it first was. Frameworks rebuild their history, and lose fields
   * and change forms on the way; the endpoint would take the difference for an edited history.
   */
  restore(messages: readonly RawMessage[]): RawMessage[] {
    return messages.map((message, i) => {
      const key = answerKey(message);
      if (key === undefined) return message;
      const before = this.#messages[i];
      if (before && answerKey(before) === key) return before;
      return this.#answers.get(key) ?? message;
    });
  }

  record(sent: readonly RawMessage[], response: ChatResponse): void {
    const answer = response.choices[0]?.message;
    if (!answer) return;
    this.#messages = [...sent, answer];
    this.expect([answer]);
    const { usage } = response;
    if (usage) {
      const cached = usage.prompt_tokens_details?.cached_tokens;
      const { prompt_tokens, completion_tokens } = usage;
      this.#calls.push({ prompt_tokens, completion_tokens, ...(cached ? { cached_tokens: cached } : {}) });
    }
  }

  /** True once a model call was answered. */
  get hasAnswer(): boolean {
    return this.#messages.length > 0;
  }

  /** Keeps what was sent with a call that will have no answer. */
  recordUnanswered(sent: readonly RawMessage[]): void {
    this.#messages = [...sent];
  }

  /** Adds the answers of tools that no further model call was told about. */
  addToolResults(results: readonly { callId: string; content: string }[]): void {
    const open = this.#messages.flatMap((message) => toolCallIds(message));
    const answered = this.#messages.map((message) => message["tool_call_id"]);
    const added = results
      .filter(({ callId }) => open.includes(callId) && !answered.includes(callId))
      .map(({ callId, content }) => ({ role: "tool", tool_call_id: callId, content }));
    this.#messages = [...this.#messages, ...added];
  }

  sample(): SourcedSample {
    const report: TrajectoryReport = { samples: { conversation: { llm_call_metrics: this.#calls } } };
    return this.#calls.length > 0 ? { messages: this.#messages, report } : { messages: this.#messages };
  }
}

/** What tells one answer from another: its text and its tool calls. Undefined for all that is no answer. */
function answerKey(message: RawMessage): string | undefined {
  if (message["role"] !== "assistant") return undefined;
  const calls = Array.isArray(message["tool_calls"]) ? message["tool_calls"] : [];
  const parts = calls.map((call: { id?: unknown; function?: { name?: unknown; arguments?: unknown } }) => [
    call.id,
    call.function?.name,
    call.function?.arguments,
  ]);
  return JSON.stringify([messageText(message), parts]);
}

function toolCallIds(message: RawMessage): string[] {
  const calls = message["tool_calls"];
  if (!Array.isArray(calls)) return [];
  return calls.flatMap((call: { id?: unknown }) => (typeof call.id === "string" ? [call.id] : []));
}
