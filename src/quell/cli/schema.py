"""The keys that a configuration may have, as a person writes them: what each takes, and the nearest of a wrong one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import msgspec

from ..config import Agent, Defaults, Provider, Settings, what_there_is
from ..configfile import BUILT_IN, KEYS, NAME, NAME_RULE, TABLES, Loaded, takes
from ..errors import UsageError

KINDS: dict[str, type[msgspec.Struct]] = {
    "settings": Settings,
    "defaults": Defaults,
    "agents": Agent,
    "models": Provider,
}
NAMED = ("agents", "models")
"""Tables of tables, each with a name of its own."""
_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^."'][^.]*))\s*(?:\.|\Z)""")


@dataclass(frozen=True)
class Key:
    """`agents.coder.limits.steps`, and what it takes."""

    parts: tuple[str, ...]
    kind: Any

    def __str__(self) -> str:
        return ".".join(one if NAME.fullmatch(one) else f'"{one}"' for one in self.parts)


def key_of(text: str) -> Key:
    """UsageError names the nearest."""
    parts = _split(text)
    table = parts[0]
    if table not in KINDS:
        raise UsageError(f"there is no table {table!r}; {what_there_is('tables', table, list(TABLES))}")
    at = 2 if table in NAMED else 1
    if len(parts) <= at:
        raise UsageError(f"{text} is a table: name a key in it, as in {_example(table)}")
    if table in NAMED:
        good_name(table, parts[1])
    kind: Any = KINDS[table]
    while isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if at >= len(parts):
            raise UsageError(f"{text} is a table: name a key in it, as in {text}.{next(iter(_fields(kind)))}")
        kind = _field(kind, ".".join(parts[:at]), parts[at])
        at += 1
    if get_origin(kind) is dict:
        if at >= len(parts):
            raise UsageError(f"{text} is a table: name a key in it, as in {text}.{_below(parts[-1])}")
        parts = [*parts[:at], ".".join(parts[at:])]  # what comes now is one name, whatever it holds
        return Key(tuple(parts), get_args(kind)[1])
    if at < len(parts):
        raise UsageError(f"{'.'.join(parts[:at])} is no table: there is no {text}")
    return Key(tuple(parts), kind)


def good_name(table: str, name: str) -> str:
    if NAME.fullmatch(name) is None:
        what = "an agent" if table == "agents" else "models"
        raise UsageError(f"{name!r} is no name of {what}: {NAME_RULE}")
    return name


def value_of(key: Key, text: str) -> Any:
    """As the key takes it. UsageError says what it takes, and does not repeat what may be a secret."""
    if get_origin(key.kind) is tuple:
        return _listed(key, text)
    try:
        value = msgspec.convert(text, key.kind, strict=False)
    except (ValueError, TypeError):
        raise UsageError(f"{key} takes {takes(key.kind)}") from None
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53
    return int(value) if whole else value


def keys(loaded: Loaded) -> Iterator[str]:
    """All that could be set, for agents and models that there are."""
    for table, kind in KINDS.items():
        named: dict[str, list[str]] = {
            "agents": [*BUILT_IN, *(one.name for one in loaded.agents if one.name not in BUILT_IN)],
            "models": [one.name for one in loaded.providers],
        }
        for one in [f"{table}.{name}" for name in named[table]] if table in named else [table]:
            yield from (f"{one}.{name}" for name in _leaves(kind))


def _leaves(kind: type[msgspec.Struct]) -> Iterator[str]:
    for name, one in _fields(kind).items():
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            yield from (f"{name}.{below}" for below in _leaves(one))
        else:
            yield name


def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {one.name: one.type for one in msgspec.structs.fields(kind) if one.name != "name"}


def _field(kind: type[msgspec.Struct], above: str, name: str) -> Any:
    known = _fields(kind)
    if name not in known:
        if kind is Provider and name.lower() in KEYS:
            raise UsageError(
                f"{above}.{name}: a key does not belong into the file; put it into a variable and name that:"
                f" quell config set {above}.key_env NAME"
            )
        raise UsageError(f"{above}: there is no key {name!r}; {what_there_is('keys', name, list(known))}")
    return known[name]


def _split(text: str) -> list[str]:
    """At its dots, but for those in quotes."""
    parts, at = [], 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            raise UsageError(f"{text!r} is no key: it looks like settings.term")
        double, single, bare = found.groups()
        if double is not None:
            parts.append(re.sub(r"\\(.)", r"\1", double))
        else:
            parts.append(single if single is not None else bare.strip())
        at = found.end()
    if not parts or text.endswith("."):
        raise UsageError(f"{text!r} is no key: it looks like settings.term")
    return parts


def _listed(key: Key, text: str) -> list[str]:
    """With commas between, or as TOML and JSON write a list."""
    text = text.strip()
    if text.startswith("["):
        import tomllib

        try:
            found = tomllib.loads(f"list = {text}")["list"]
            return list(msgspec.convert(found, tuple[str, ...]))
        except (ValueError, TypeError):
            raise UsageError(f'{key} is a list of words: with commas between, or as ["one", "other"]') from None
    return [word.strip() for word in text.split(",") if word.strip()]


def _example(table: str) -> str:
    return {
        "settings": "settings.term",
        "defaults": "defaults.model",
        "agents": "agents.NAME.model",
        "models": "models.NAME.base_url",
    }[table]


def _below(name: str) -> str:
    return "EDITOR" if name == "env" else "shell"
