"""An agent as it is asked for in the words of a command line, made into what the file of settings takes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from ..config import Agent, Policy, rule, what_there_is
from ..configfile import BUILT_IN, Loaded
from ..errors import UsageError
from .offered import check

if TYPE_CHECKING:
    from .draft import Draft

LONGEST = 1_000_000
"""Characters of a system prompt."""


def start_from(origin: str | None, name: str, loaded: Loaded) -> dict[str, Any]:
    """What another one says, and an agent of that name would not if nothing was said."""
    if origin is None:
        return {}
    other = next((one for one in loaded.agents if one.name == origin), BUILT_IN.get(origin))
    if other is None:
        known = sorted({*BUILT_IN, *(one.name for one in loaded.agents)})
        raise UsageError(f"there is no agent {origin!r}; {what_there_is('agents', origin, known)}")
    built_in = BUILT_IN.get(name)
    plain = _table(built_in or Agent(name=name, model=""))
    plain["model"] = plain["model"] or loaded.defaults.model
    nothing = () if built_in else ("",)
    found = {key: value for key, value in _table(other).items() if value not in (plain[key], *nothing)}
    if "limits" in found:
        found["limits"] = {key: value for key, value in found["limits"].items() if value != plain["limits"][key]}
    return found


def enlist(draft: Draft, name: str, wish: dict[str, Any], rules: dict[str, Policy], origin: str | None) -> list[str]:
    """Put it into the draft, in the place of one of that name. What is to be said of it; UsageError, what cannot be."""
    table = {**start_from(origin, name, draft.check()), **wish}
    if rules:
        table["approval"] = {**table.get("approval", {}), **rules}
    if draft.has(("agents", name)):
        draft.drop(("agents", name))
    draft.put(("agents", name), table)
    loaded = draft.check()
    found = next(one for one in loaded.agents if one.name == name)
    if not found.network and found.isolation == "none":
        raise UsageError("--no-network is of a sandbox: add --isolation bwrap")
    return check(found, loaded)


def _table(agent: Agent) -> dict[str, Any]:
    """As TOML reads it."""
    found: dict[str, Any] = msgspec.to_builtins(agent) | {"tools": list(agent.tools)}
    del found["name"]
    return found


def text_of(system: str) -> str:
    if not system.startswith("@"):
        return system
    path = os.path.expanduser(system[1:])
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"--system: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > LONGEST:
        raise UsageError(f"--system: {path} is longer than {LONGEST} characters")
    return text


def rules_of(given: list[str]) -> dict[str, Policy]:
    found: dict[str, Policy] = {}
    for one in given:
        key, _, word = one.rpartition("=")
        try:
            found[key.strip()] = msgspec.convert(word.strip(), Policy)
            rule(key.strip())
        except ValueError as error:
            said = str(error) if word.strip() in ("allow", "ask", "deny") else "it ends with =allow, =ask or =deny"
            raise UsageError(f"--approve {one!r} makes no sense: {said}") from None
    return found
