"""The tool `agent`: another agent does a part of the work, in a session of its own that ends with this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..ports import Caller, PluginContext, ToolSpec
from .arguments import schema, taken


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: Annotated[str, msgspec.Meta(min_length=1, description="The name of the agent.")]
    text: Annotated[
        str, msgspec.Meta(min_length=1, description="What it is to do; it knows nothing else of your work.")
    ]


class Agent:
    """Limits of depth and breadth are the session's, and so is the end of the sub-agent."""

    spec = ToolSpec("agent", "Have another agent do something, and get its answer.", schema(Task))

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        task = taken("agent", Task, arguments)
        return await caller.delegate(task.agent, task.text)


class _Plugin:
    name = "agent"

    def setup(self, ctx: PluginContext) -> None:
        ctx.tool(Agent())


plugin = _Plugin()
