"""Typed settings, each named once with its default: of the runtime, of agents, of who serves models.

They are read when used: a change acts on the next use. The file that sets them is read by `configfile`.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec

from .errors import UsageError

T = TypeVar("T", bound=msgspec.Struct)
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Variable = Annotated[str, msgspec.Meta(pattern=r"^[^=\0]+\Z", max_length=255)]
Value = Annotated[str, msgspec.Meta(pattern=r"^[^\0]*\Z")]
Policy = Literal["allow", "ask", "deny"]
Effort = Literal["", "low", "medium", "high"]


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
    """Of one turn, each with its own end; 0 is no limit, but for sub-agents, of whom there are none then.

    The tokens and cost of sub-agents count for whoever waits for them, and none goes deeper than any above it may.
    """

    steps: Count = 50
    tokens: Count = 0
    seconds: Amount = 3600.0
    cost: Amount = 0.0
    """Dollars."""
    answer: Count = 0
    """Tokens of one answer of the model."""
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
    """`provider:model`, or a model's own name; empty takes the one that is asked for at the start."""
    harness: str = ""
    """A foreign agent in the place of model, strategy and tools."""
    strategy: str = "tools"
    tools: tuple[str, ...] = ("shell", "jobs", "agent")
    memory: str = ""
    system: str = ""
    approval: dict[str, Policy] = {}
    """By `tool`, by `tool(pattern)` or `tool(argument=pattern, …)`, and `*` for all others; see `rule`.

    What nothing is said of is asked, but for reading in the working directory.
    """
    isolation: Literal["none", "bwrap"] = "none"
    """Where its commands run: `bwrap` is a sandbox in which only the working directory can be written."""
    network: bool = True
    """In that sandbox."""
    effort: Effort = ""
    """How much the model is to think; empty is its own default."""
    limits: Limits = Limits()
    env: dict[Variable, Value] = {}
    """For its commands, besides the few variables that every command has. A sub-agent has its own agent's."""

    def __post_init__(self) -> None:
        """UsageError names a rule of approval that makes no sense. What has the wrong type is for `fit`."""
        rules: object = self.approval
        for key in rules if isinstance(rules, dict) else ():
            try:
                rule(str(key))
            except ValueError as error:
                raise UsageError(
                    f"agent {self.name!r}: the rule {key!r} for approvals makes no sense: {error}"
                ) from None

    def __repr__(self) -> str:
        """Without the environment, which may hold keys."""
        shown = msgspec.structs.replace(self, env=dict.fromkeys(self.env, "…")) if self.env else self
        return f"Agent({', '.join(f'{name}={value!r}' for name, value in msgspec.structs.asdict(shown).items())})"


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody who serves models over HTTP, under a name of yours: agents say `name:model`."""

    name: str
    kind: Literal["openai", "anthropic"] = "openai"
    """What it speaks."""
    base_url: str = ""
    """Empty is that of the kind."""
    key_env: str = ""
    """The variable that holds the key; empty is that of the kind, which goes to no address of your own."""
    api: Literal["", "responses", "chat"] = ""
    """Of the kind openai: empty is `responses` for OpenAI itself and `chat` for any other address."""
    price_input: Amount = 0.0
    """Dollars for a million tokens."""
    price_cached: Amount = 0.0
    price_output: Amount = 0.0


class Defaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a new session takes where nobody is named: of `quell run`, of `quell chat` and of the server."""

    agent: str = ""
    """Empty: `scripted`, or `assistant` where a model is named."""
    model: str = ""
    """For agents that name none of their own; `provider:model`."""


# -- rules of approval

STAR = "\0"
"""What a wildcard is in a pattern that was read; a star that is meant is written as `\\*`."""

_RULE = re.compile(r"([A-Za-z][A-Za-z0-9_.-]{0,63})(?:\((.*)\))?", re.DOTALL)
_ARGUMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*=")
_FORMS = "it is *, tool, tool(pattern) or tool(argument=pattern, …)"


@dataclass(frozen=True)
class Rule:
    """Of a tool, and of those of its calls that fit every pattern; the name `` is that of its principal argument."""

    tool: str
    patterns: tuple[tuple[str, str], ...] = ()


@functools.lru_cache(maxsize=1000)
def rule(key: str) -> Rule:
    """What a key of `Agent.approval` means. ValueError says what is wrong with it.

    A pattern is text in which `*` is a wildcard; a backslash takes the meaning from what follows it. What begins with
    a word and `=` is of the argument of that name, and so is each that follows a comma in the same way.
    """
    found = _RULE.fullmatch(key) if STAR not in key else None
    if key == "*":
        return Rule("*")
    if found is None:
        raise ValueError(_FORMS)
    tool, inside = found.groups()
    if inside is None:
        return Rule(tool)
    if _ARGUMENT.match(inside) is None:
        return Rule(tool, (("", _pattern(inside)),))
    patterns: dict[str, str] = {}
    for part in _parts(inside):
        named = _ARGUMENT.match(part)
        assert named is not None
        if named[1] in patterns:
            raise ValueError(f"{named[1]} is there twice")
        patterns[named[1]] = _pattern(part[named.end() :])
    return Rule(tool, tuple(patterns.items()))


def _parts(inside: str) -> list[str]:
    """Split at the commas that a word and `=` follow."""
    cuts = [one.start() for one in re.finditer(r"(?<!\\),(?=\s*[A-Za-z_]\w*\s*=)", inside)]
    return [inside[start:end] for start, end in zip([0, *(cut + 1 for cut in cuts)], [*cuts, None], strict=True)]


def _pattern(text: str) -> str:
    """With wildcards for its stars, and without its backslashes."""
    read, depth, rest = [], 0, iter(text.strip())
    for char in rest:
        if char == "\\":
            char = next(rest, "")
            if not char:
                raise ValueError("a backslash at its end takes the meaning from nothing")
            read.append(char)
            continue
        depth += (char == "(") - (char == ")")
        if depth < 0:
            break
        read.append(STAR if char == "*" else char)
    if depth:
        raise ValueError("a parenthesis has no other to it; a backslash before it makes it a character like any other")
    if not read:
        raise ValueError(f"its pattern is empty; {_FORMS}")
    return "".join(read)


FILES = ("read", "write", "edit", "glob", "grep")
SCRIPTED = Agent(
    name="scripted",
    tools=("shell", "jobs", "agent", *FILES),
    approval={"shell": "allow", "jobs": "allow", "agent": "allow"},
)
"""The offline default: it needs no key, and may use the shell."""
ASSISTANT = Agent(
    name="assistant",
    model="",
    tools=("shell", "jobs", "agent", *FILES, "remember", "recall"),
    memory="sqlite",
    system=(
        "You are a careful engineer at work in the folder that the user chose. Look before you change anything, "
        "use your tools rather than guess, and say briefly what you did and what came of it."
    ),
)
"""For a model that is named: what is not reading is asked."""


def fit(thing: object, kind: type[T]) -> T:
    """The same, checked: what a program builds by hand is not. UsageError says what does not fit."""
    try:
        return msgspec.convert(msgspec.to_builtins(thing), kind)
    except (ValueError, TypeError) as error:
        name = f" {thing.name!r}" if isinstance(thing, Agent) else ""
        raise UsageError(f"{kind.__name__}{name} makes no sense: {error}") from None


def what_there_is(what: str, wanted: str, known: list[str]) -> str:
    """The rest of a sentence about a name that is not there."""
    from difflib import get_close_matches

    if not known:
        return f"there are no {what}"
    near = get_close_matches(wanted[:100], known, 1)  # a model may want a name of megabytes
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{hint}there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"


def usual_file(environ: Mapping[str, str]) -> str:
    """Where the file of this user is, unless another is named."""
    folder = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):
        folder = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(folder, "quell", "config.toml")
