"""The same task on the SDK's integration of OpenAI Agents, which streams through LiteLLM."""

import os

import uvicorn
from agents import Runner, function_tool
from main import Exact
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.backend.local import LocalBackend
from osmosis_ai.rollout.context import AgentWorkflowContext
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.server import create_rollout_server


@function_tool
def multiply(a: float, b: float) -> str:
    """Multiply two numbers."""
    return str(round(a * b, 4))


class Multiply(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext):
        agent = OsmosisAgent(name="calculator", model=OsmosisRolloutModel(), tools=[multiply])
        await Runner.run(agent, list(ctx.prompt), session=OsmosisMemorySession(), max_turns=4)


if __name__ == "__main__":
    server = create_rollout_server(backend=LocalBackend(workflow=Multiply, grader=Exact))
    uvicorn.run(server, host="127.0.0.1", port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")))
