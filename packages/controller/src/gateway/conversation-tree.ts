import type { ChatCodec } from "@osmosis/engine";
import type { ChatMessage, ChatTool, TokenSequence } from "@osmosis/protocol";
import { messageFingerprint, toolsFingerprint } from "./message-fingerprint.ts";

/**
 * The model calls of one rollout as a forest. A node is one call; it holds the ids that were appended to its parent's for
 * the new messages, and the ids that were sampled. Nothing is tokenised twice.
 *
 * A call extends the node with the longest history that its messages begin with. A client that repeats a call or goes
 * back to an earlier point makes a second child: a fork, not a break. A call whose past holds an answer that we did not
 * give has changed history: it starts a tree of its own, rendered from scratch, and counts as a prefix break.
 */
export type CallNode = {
  readonly parent: CallNode | undefined;
  /** The request's messages and the answer. */
  readonly messages: readonly ChatMessage[];
  readonly fingerprints: readonly string[];
  readonly tools: string;
  /** Prompt and answer, with those of all ancestors. */
  readonly ids: readonly number[];
  /** Ids of this call's prompt that its parent does not have. */
  readonly appended: readonly number[];
  readonly sampled: readonly number[];
  readonly logprobs: readonly number[];
  /** Name of the key-value cache that holds the ids. */
  readonly conversation: string;
};

/** Where a call continues. */
export type CallStart = {
  readonly parent: CallNode | undefined;
  readonly prompt: readonly number[];
  readonly appended: readonly number[];
  readonly broke: boolean;
};

export type ConversationTree = {
  readonly nodes: readonly CallNode[];
  /** @throws OsmosisError `VALIDATION` when the chat template refuses the messages. */
  locate(messages: readonly ChatMessage[], tools: readonly ChatTool[]): CallStart;
  add(
    start: CallStart,
    call: {
      readonly messages: readonly ChatMessage[];
      readonly tools: readonly ChatTool[];
      readonly answer: ChatMessage;
      readonly sampled: readonly number[];
      readonly logprobs: readonly number[];
      readonly conversation: string;
    },
  ): CallNode;
  /**
   * One sequence for each node without children, in the order of the calls. A call that several of them share is
   * marked as sampled in the first only, so that its tokens are trained once.
   */
  sequences(): TokenSequence[];
};

export function createConversationTree(codec: ChatCodec): ConversationTree {
  const nodes: CallNode[] = [];

  function render(messages: readonly ChatMessage[], tools: readonly ChatTool[], broke: boolean): CallStart {
    const prompt = codec.renderPrompt(messages, tools);
    return { parent: undefined, prompt, appended: prompt, broke };
  }

  return {
    nodes,
    locate(messages, tools) {
      const parent = longestPrefix(nodes, messages.map(messageFingerprint), toolsFingerprint(tools));
      const added = messages.slice(parent?.messages.length ?? 0);
      const foreignAnswer = added.some(({ role }) => role === "assistant");
      if (parent === undefined || foreignAnswer)
        return render(messages, tools, foreignAnswer && nodes.length > 0);
      const appended = codec.renderContinuation(parent.messages, added, tools, {
        lastTokens: parent.sampled,
      });
      if (appended === "break") return render(messages, tools, true);
      return { parent, prompt: [...parent.ids, ...appended], appended, broke: false };
    },
    add(start, { messages, tools, answer, sampled, logprobs, conversation }) {
      const whole = [...messages, answer];
      const node: CallNode = {
        parent: start.parent,
        messages: whole,
        fingerprints: whole.map(messageFingerprint),
        tools: toolsFingerprint(tools),
        ids: [...start.prompt, ...sampled],
        appended: start.appended,
        sampled,
        logprobs,
        conversation,
      };
      nodes.push(node);
      return node;
    },
    sequences() {
      const parents = new Set(nodes.map(({ parent }) => parent));
      const trained = new Set<CallNode>();
      return nodes.filter((node) => !parents.has(node)).map((leaf) => sequenceOf(leaf, trained));
    },
  };
}

function longestPrefix(
  nodes: readonly CallNode[],
  fingerprints: readonly string[],
  tools: string,
): CallNode | undefined {
  let best: CallNode | undefined;
  for (const node of nodes) {
    if (node.tools !== tools || node.messages.length >= fingerprints.length) continue;
    if (node.messages.length <= (best?.messages.length ?? 0)) continue;
    if (node.fingerprints.every((fingerprint, index) => fingerprint === fingerprints[index])) best = node;
  }
  return best;
}

function sequenceOf(leaf: CallNode, trained: Set<CallNode>): TokenSequence {
  const path: CallNode[] = [];
  for (let node: CallNode | undefined = leaf; node !== undefined; node = node.parent) path.unshift(node);
  const sequence: TokenSequence = { tokens: [], mask: [], logprobs: [] };
  for (const node of path) {
    const first = !trained.has(node);
    trained.add(node);
    for (const id of node.appended) {
      sequence.tokens.push(id);
      sequence.mask.push(0);
      sequence.logprobs.push(0);
    }
    for (const [index, id] of node.sampled.entries()) {
      sequence.tokens.push(id);
      sequence.mask.push(first ? 1 : 0);
      sequence.logprobs.push(first ? (node.logprobs[index] ?? 0) : 0);
    }
  }
  return sequence;
}
