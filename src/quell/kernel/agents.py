"""The agents of a runtime, by their names: those that are given, and the two that are built in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from ..config import ASSISTANT, SCRIPTED, Agent, fit
from ..errors import UsageError

if TYPE_CHECKING:
    from .registry import Registry


def by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    """UsageError says which makes no sense, or has a name that another has."""
    if isinstance(agents, msgspec.Struct | dict | str):
        raise UsageError("agents is a list of Agent")
    found: dict[str, Agent] = {}
    for agent in (fit(one, Agent) for one in agents):
        if agent.name in found:
            raise UsageError(f"there are two agents named {agent.name!r}")
        found[agent.name] = agent
    return found


def built_in(agents: Mapping[str, Agent], registry: Registry) -> dict[str, Agent]:
    """Those, or what was given under their names; what nobody chose and no plugin brings is left out."""
    found: dict[str, Agent] = {}
    for agent in (SCRIPTED, ASSISTANT):
        given = agents.get(agent.name, agent)
        if given.tools == agent.tools:
            tools = tuple(name for name in agent.tools if registry.has("tool", name))
            given = msgspec.structs.replace(given, tools=tools)
        if given.memory == agent.memory and not registry.has("memory", agent.memory):
            given = msgspec.structs.replace(given, memory="")
        found[agent.name] = given
    return found
