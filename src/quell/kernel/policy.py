"""What an agent may do without asking: a rule allows only what it is certain of, and denies whatever it may mean.

Of the rules with a pattern, deny goes before ask and ask before allow; then comes the rule of the tool, then that of
`*`. Without any, reading in the working directory is allowed, and all else is asked.

`tool(pattern)` is of the tool's principal argument, `tool(argument=pattern, …)` of those that are named; the others may
be anything. How a pattern is read depends on the argument:

- A command: `*` is words of one plain command. A wildcard allows nothing that has signs which could begin another
  command, redirect or expand, and never completes the name of the command. What a program does with its words is
  another matter: `git *` allows all that git can be told to do, and git can be told to run anything (`git -c …`,
  `git config …`). Allow what you mean: `git status*`.
- A path: relative to the working directory, after dots and links are followed; `*` is a part of one name, `**` any
  number of folders.
- An address: `*` in the host is whole labels, behind it anything.
- Any other text: `*` is anything.

A deny is a help and no wall: what a shell can be made to run has no end. `isolation` is the wall. What is Quell's own
is asked whatever the rules say: see `own.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..config import FILES, Agent, Policy, Rule, rule
from .patterns import fits, is_inside, kind_of, may_fit, may_hold

PRINCIPAL = {
    "shell": "command",
    **dict.fromkeys(FILES, "path"),
    "fetch": "url",
    "agent": "agent",
    "remember": "text",
    "recall": "query",
    "jobs": "action",
}
READING = frozenset({"read", "glob", "grep"})
SEARCHING = frozenset({"glob", "grep"})
"""These go down from a folder; without one, from the working directory."""
NARROWING = {"glob": ("pattern",), "grep": ("glob", "include")}
"""Arguments that choose among the files of that folder, and must not lead out of it."""

_LEADS_OUT = re.compile(r"(^|[{,])[/~]|\.\.")
_ABSENT = object()
_TYPES: dict[type, frozenset[str]] = {
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    type(None): frozenset({"null"}),
}


def policy(
    agent: Agent,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    cwd: str = "",
    parameters: Mapping[str, Any] | None = None,
) -> Policy:
    """`parameters` is the tool's own schema. May look at the disk. ValueError: a rule that makes no sense."""
    wish = Wish(tool, arguments or {}, cwd, parameters or {})
    rules = [(rule(key), word) for key, word in agent.approval.items()]
    mine = [(one, word) for one, word in rules if one.tool == tool and one.patterns]
    doubts: list[bool | None] = []
    for one, word in mine:
        if word != "allow":
            doubts.append(wish.may_fit(one))
            if word == "deny" and doubts[-1]:
                return "deny"
    certain = {word for one, word in mine if word != "deny" and wish.fits(one)}
    if "ask" in certain:
        return "ask"
    plain = {one.tool: word for one, word in rules if not one.patterns}
    verdict: Policy = "allow" if certain else plain.get(tool) or plain.get("*") or wish.usual()
    return "ask" if verdict == "allow" and any(one is not False for one in doubts) else verdict


def looks(agent: Agent, tool: str) -> bool:
    """Whether the disk, or a long text, must be looked at."""
    said = tool in agent.approval or "*" in agent.approval
    return any(key.startswith(f"{tool}(") for key in agent.approval) or (tool in READING and not said)


class Wish:
    """A call that is wanted."""

    def __init__(self, tool: str, arguments: Mapping[str, Any], cwd: str, parameters: Mapping[str, Any]) -> None:
        self.tool = tool
        self.arguments = arguments
        self.cwd = cwd
        known = parameters.get("properties")
        self._known: Mapping[str, Any] = known if isinstance(known, Mapping) else {}
        self._principal = self._main(parameters)

    def fits(self, rule: Rule) -> bool:
        """Whether every pattern of it is certain to fit."""
        return all(self._fits(name, pattern) for name, pattern in rule.patterns)

    def may_fit(self, rule: Rule) -> bool | None:
        """Whether every pattern of it may; None if that cannot be told."""
        found = {self._may_fit(name, pattern) for name, pattern in rule.patterns}
        return False if False in found else None if None in found else True

    def usual(self) -> Policy:
        """Where no rule says anything."""
        if self.tool not in READING or not self._stays_below():
            return "ask"
        path = self._value("path")
        return "allow" if isinstance(path, str) and is_inside(path, self.cwd) else "ask"

    # -- arguments

    def _fits(self, name: str, pattern: str) -> bool:
        argument = name or self._principal
        value = self._value(argument)
        if not self._has_its_type(argument, value) or not (name or isinstance(value, str)):
            return False
        kind, text = kind_of(argument), word(value)
        if text is None or (kind != "text" and not isinstance(value, str)):
            return False
        if kind == "path" and not self._stays_below():
            return False
        return fits(kind, pattern, text, self.cwd)

    def _may_fit(self, name: str, pattern: str) -> bool | None:
        argument = name or self._principal
        text = word(self._value(argument))
        if text is None:
            return None  # it has no such argument, or one with parts: whatever was meant, it could be this
        found = may_fit(kind_of(argument), pattern, text, self.cwd)
        if found is False and kind_of(argument) == "path" and self.tool in SEARCHING:
            return None if not self._stays_below() or may_hold(pattern, text, self.cwd) else False
        return found

    def _value(self, argument: str) -> Any:
        """What is given, or what the tool takes where nothing is."""
        if argument in self.arguments:
            return self.arguments[argument]
        shape = self._known.get(argument)
        if isinstance(shape, Mapping) and "default" in shape:
            return shape["default"]
        return "." if argument == "path" and self.tool in SEARCHING else _ABSENT

    def _main(self, parameters: Mapping[str, Any]) -> str:
        """The principal argument; empty where there is none."""
        name = PRINCIPAL.get(self.tool, "")
        if name and (name in self._known or not self._known):
            return name
        needed = parameters.get("required")
        for one in needed if isinstance(needed, list) else ():
            shape = self._known.get(one)
            if isinstance(shape, Mapping) and shape.get("type") == "string":
                return str(one)
        return ""

    def _has_its_type(self, argument: str, value: Any) -> bool:
        """As far as the schema tells."""
        taken = _types(self._known.get(argument))
        return not taken or bool(taken & _TYPES.get(type(value), frozenset()))

    def _stays_below(self) -> bool:
        """Whether what a search looks for is below the folder where it begins."""
        for name in NARROWING.get(self.tool, ()):
            value = self.arguments.get(name, "")
            if value is not None and (not isinstance(value, str) or _LEADS_OUT.search(value) is not None):
                return False
        return True


def _types(shape: Any) -> frozenset[str]:
    """The names of the types that a schema takes; none where it does not say."""
    if not isinstance(shape, Mapping):
        return frozenset()
    named = shape.get("type")
    found = {named} if isinstance(named, str) else set(named) if isinstance(named, list) else set()
    for several in (shape.get("anyOf"), shape.get("oneOf")):
        for one in several if isinstance(several, list) else ():
            found |= _types(one)
    return frozenset(one for one in found if isinstance(one, str))


def word(value: Any) -> str | None:
    """A value as a pattern has it: a text as it is, anything plain as in JSON. None: it has parts, or is not there."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if isinstance(value, bool | int | float) or value is None else None
