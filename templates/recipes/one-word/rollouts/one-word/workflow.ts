import { Agent } from "@openai/agents";
import { AgentWorkflow, type AgentWorkflowContext } from "@osmosis/sdk";
import { osmosisModel, runOsmosisAgent } from "@osmosis/sdk/openai-agents";

/** One question, one answer, no tools. */
export class OneWordWorkflow extends AgentWorkflow {
  override async run(ctx: AgentWorkflowContext): Promise<void> {
    const agent = new Agent({ name: "sorter", model: osmosisModel() });
    await runOsmosisAgent(agent, ctx.prompt, { maxTurns: 1, signal: ctx.signal });
  }
}
