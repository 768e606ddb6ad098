"""Every value that is in force, with where it comes from; keys and the environments of agents are masked."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from ..config import Agent, Provider
from ..configfile import BUILT_IN, Loaded
from ..kernel.redaction import MASK, Redaction
from ..secrecy import secrets_in
from .composing import agents_of
from .screen import Line, one_line

LONG = 60
"""Characters of a value in a table."""
KEY_OF = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""Where a provider that names no variable has its key."""


@dataclass(frozen=True)
class Value:
    key: tuple[str, ...]
    value: Any
    origin: str
    """`default`, `built in`, `file`, the variable that says it, or `defaults.model`."""

    @property
    def chosen(self) -> bool:
        """By somebody, and not by us."""
        return self.origin not in ("default", "built in")

    @property
    def shown(self) -> str:
        return one_line(self.text, LONG)

    @property
    def text(self) -> str:
        whole = isinstance(self.value, float) and self.value.is_integer()
        text = self.value if isinstance(self.value, str) and self.value else f"{self.value:g}" if whole else ""
        return one_line(text or json.dumps(self.value))

    def line(self, widths: tuple[int, int], whole: bool = False) -> Line:
        """Aligned, for a person; a long value is cut, unless it is wanted whole."""
        style = "" if self.chosen else "dim"
        name = ".".join(self.key)
        return [
            (style, f"{name:{widths[0]}}  {self.text if whole else self.shown:{widths[1]}}  "),
            ("dim", self.origin),
        ]


class Effective:
    """Of one configuration."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._redaction = Redaction()
        self._redaction.conceal(*secrets_in(os.environ), *loaded.secrets)

    def all(self) -> list[Value]:
        loaded = self._loaded
        return [
            *self._rows(("settings",), msgspec.to_builtins(loaded.settings), "default"),
            *self._rows(("defaults",), msgspec.to_builtins(loaded.defaults), "default"),
            *(row for one in loaded.providers for row in self.provider(one)),
            *(row for name in agents_of(loaded) for row in self.agent(name)),
        ]

    def agent(self, name: str) -> list[Value]:
        """All of it. It is there."""
        agent = agents_of(self._loaded)[name]
        start = "built in" if name in BUILT_IN else "default"
        return [
            self._model(agent, row) if row.key[2:] == ("model",) else row
            for row in self._rows(("agents", name), _plain(agent), start)
        ]

    def provider(self, provider: Provider) -> list[Value]:
        rows = list(self._rows(("models", provider.name), _plain(provider), "default"))
        variable = provider.key_env or KEY_OF[provider.kind]
        there = f"${variable} {'is set' if os.environ.get(variable, '').strip() else 'is not set'}"
        if provider.base_url and not provider.key_env:
            there = "key_env names none"
        return [*rows, Value(("models", provider.name, "key"), there, "environment")]

    def _model(self, agent: Agent, row: Value) -> Value:
        """Who names none of their own has the default one."""
        default = self._loaded.defaults.model
        own = BUILT_IN[agent.name].model if agent.name in BUILT_IN else ""
        taken = row.origin != "file" and default and agent.model == default and not own
        return Value(row.key, row.value, "defaults.model") if taken else row

    def _rows(self, above: tuple[str, ...], table: dict[str, Any], otherwise: str) -> Iterator[Value]:
        for name, value in table.items():
            key = (*above, name)
            if isinstance(value, dict):
                yield from self._rows(key, value, otherwise)
                continue
            origin = self._loaded.origins.get(".".join(key), otherwise)
            yield Value(key, MASK if "env" in above else self._redaction.thing(value), origin)


def _plain(thing: Agent | Provider) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(thing)
    del found["name"]
    return found


def nested(rows: Iterable[Value]) -> dict[str, Any]:
    """For programs: tables in tables, each value with where it comes from."""
    found: dict[str, Any] = {}
    for row in rows:
        *above, last = row.key
        table = found
        for part in above:
            table = table.setdefault(part, {})
        table[last] = {"value": row.value, "from": row.origin}
    return found


def lines(rows: list[Value], *, whole: bool = False) -> list[Line]:
    widths = (
        max((len(".".join(row.key)) for row in rows), default=0),
        max((len(row.shown) for row in rows), default=0),
    )
    return [row.line(widths, whole) for row in rows]
