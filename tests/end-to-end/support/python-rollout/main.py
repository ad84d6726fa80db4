"""Multiplication with one tool, on the official Python SDK."""

import json
import os
import re

import httpx
import uvicorn
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.backend.local import LocalBackend
from osmosis_ai.rollout.context import AgentWorkflowContext, GraderContext, get_rollout_context
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.server import create_rollout_server

MULTIPLY = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiplies two numbers and gives the product.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
}


class Multiply(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext):
        rollout = get_rollout_context()
        messages = list(ctx.prompt)
        async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
            for _ in range(4):
                answer = await client.post(
                    f"{rollout.chat_completions_url}/chat/completions",
                    headers={"Authorization": f"Bearer {rollout.api_key}"},
                    json={"model": "osmosis-rollout", "messages": messages, "tools": [MULTIPLY]},
                )
                answer.raise_for_status()
                message = answer.json()["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    break
                for call in message["tool_calls"]:
                    try:
                        numbers = json.loads(call["function"]["arguments"])
                        content = str(round(float(numbers["a"]) * float(numbers["b"]), 6))
                    except (ValueError, KeyError, TypeError) as error:
                        content = f"error: {error}"
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        return messages


class Exact(Grader):
    async def grade(self, ctx: GraderContext):
        # Chat messages here, items of the Responses API with OpenAI Agents: the answer is in the last one's content.
        answer = str(ctx.sample.messages[-1].get("content") or "")
        found = re.findall(r"####\s*(-?\d+(?:\.\d+)?)", answer)
        right = bool(found) and abs(float(found[-1]) - float(ctx.label)) < 0.01
        ctx.set_reward(1.0 if right else 0.0)


if __name__ == "__main__":
    server = create_rollout_server(backend=LocalBackend(workflow=Multiply, grader=Exact))
    uvicorn.run(server, host="127.0.0.1", port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")))
