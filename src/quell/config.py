"""Typed settings, each named once with its default. They are read when used: a change acts on the next use."""

from __future__ import annotations

from typing import Literal

import msgspec

Policy = Literal["allow", "ask", "deny"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds, all of them."""

    ask: float = 2.0
    """For tasks and closers to end after a stop asked them."""
    term: float = 5.0
    """For processes to end after SIGTERM, until SIGKILL."""
    handler: float = 30.0
    """For a plugin's handler to deal with one event."""
    plugin: float = 30.0
    """For a plugin to be set up."""
    harness: float = 30.0
    """For a harness to start."""
    silent: float = 60.0
    """Without a word from a model or tool, until whoever waits is told so."""
    approval: float = 600.0
    """For a person to answer, until the call is refused."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one turn, each with its own end; 0 is no limit."""

    steps: int = 50
    tokens: int = 0
    seconds: float = 3600.0
    cost: float = 0.0
    """Dollars."""
    history: int = 100_000
    """Tokens, roughly: a longer history is compacted before the model is asked."""
    depth: int = 3
    """How far sub-agents may have sub-agents."""
    breadth: int = 8
    """Sub-agents of one session at a time."""


class Agent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named configuration. What it names (model, tools, …) is registered by plugins."""

    name: str
    model: str = "scripted"
    harness: str = ""
    """A foreign agent in the place of model, strategy and tools."""
    strategy: str = "tools"
    tools: tuple[str, ...] = ("shell", "jobs", "agent")
    memory: str = ""
    system: str = ""
    approval: dict[str, Policy] = {}
    """By the name of a tool, `*` for all others. What is not named is asked."""
    isolation: Literal["none"] = "none"
    """Where its tools run: there is no sandbox yet."""
    limits: Limits = Limits()


SCRIPTED = Agent(name="scripted", approval={"*": "allow"})
"""The offline default: it needs no key, and may use its tools."""
