import { Agent } from "@openai/agents";
import { AgentWorkflow, type AgentWorkflowContext } from "@osmosis/sdk";
import { osmosisModel, runOsmosisAgent } from "@osmosis/sdk/openai-agents";
import { multiply } from "./tools.ts";

/** One question, one tool: the agent calls `multiply`, reads the product, and answers `#### <product>`. */
export class MultiplyWorkflow extends AgentWorkflow {
  override async run(ctx: AgentWorkflowContext): Promise<void> {
    // A new agent for each execution: it belongs to this rollout's conversation.
    const agent = new Agent({ name: "calculator", model: osmosisModel(), tools: [multiply] });
    await runOsmosisAgent(agent, ctx.prompt, { maxTurns: 4, signal: ctx.signal });
  }
}
