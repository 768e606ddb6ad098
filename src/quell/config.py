"""Typed settings, each named once with its default. They are read when used: a change acts on the next use."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec

from .errors import UsageError

T = TypeVar("T", bound=msgspec.Struct)
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Policy = Literal["allow", "ask", "deny"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds, all of them."""

    ask: Amount = 2.0
    """For tasks and closers to end after a stop asked them."""
    term: Amount = 5.0
    """For processes to end after SIGTERM, until SIGKILL."""
    handler: Amount = 30.0
    """For a plugin's handler to deal with one event."""
    plugin: Amount = 30.0
    """For a plugin to be set up."""
    harness: Amount = 30.0
    """For a harness to start."""
    silent: Amount = 60.0
    """Without a word from a model or tool, until whoever waits is told so."""
    approval: Amount = 600.0
    """For a person to answer, until the call is refused."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one turn, each with its own end; 0 is no limit, but for sub-agents, of whom there are none then."""

    steps: Count = 50
    tokens: Count = 0
    seconds: Amount = 3600.0
    cost: Amount = 0.0
    """Dollars."""
    history: Count = 100_000
    """Tokens, roughly: a longer history is compacted before the model is asked."""
    depth: Count = 3
    """How far sub-agents may have sub-agents."""
    breadth: Count = 8
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


def fit(thing: object, kind: type[T]) -> T:
    """The same, checked: what a program builds by hand is not. UsageError says what does not fit."""
    try:
        return msgspec.convert(msgspec.to_builtins(thing), kind)
    except (ValueError, TypeError) as error:
        name = f" {thing.name!r}" if isinstance(thing, Agent) else ""
        raise UsageError(f"{kind.__name__}{name} makes no sense: {error}") from None
