"""The file of settings, agents and models: what it says is taken, and what makes no sense is refused, by its name.

Over it stand the variables `QUELL_…`. Keys do not belong into it: a provider names the variable that holds its key.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from .config import (
    ASSISTANT,
    SCRIPTED,
    Agent,
    Amount,
    Count,
    Defaults,
    Provider,
    Settings,
    rule,
    usual_file,
    what_there_is,
)
from .errors import UsageError
from .secrecy import can_be_secret, secrets_in, secrets_of

T = TypeVar("T", bound=msgspec.Struct)
TABLES = ("settings", "defaults", "agents", "models")
BUILT_IN = {one.name: one for one in (SCRIPTED, ASSISTANT)}
"""Agents that are there without a file. One of the same name changes what it says, and keeps the rest."""
TAKEN = frozenset("scripted shell agent fetch files memory remember".split())
"""Plugins that come with Quell, which no `[models.…]` may take the place of."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
NAME_RULE = "letters, digits, `_` and `-`, up to 40 in all"
"""Of agents."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
KEYS = frozenset("key api_key apikey token api_token secret password".split())
"""What somebody writes who wants to put a key into the file."""


@dataclass(frozen=True)
class Loaded:
    """What a file and the environment say."""

    settings: Settings
    agents: tuple[Agent, ...]
    file: str
    """The one that was read; empty if there is none."""
    secrets: tuple[str, ...]
    """Of the environments of its agents, and the keys of its providers."""
    warnings: tuple[str, ...]
    defaults: Defaults = Defaults()  # noqa: RUF009  it cannot be changed
    providers: tuple[Provider, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    """By key (`settings.term`): `file`, or the variable that says it. What is not here is a default."""


def load(path: str | None, environ: Mapping[str, str]) -> Loaded:
    """The file, or the one at the usual place if that is there, and over it `QUELL_<SETTING>` of the environment.

    UsageError is one sentence with the file and the key.
    """
    file, text, is_open = _read(path, environ)
    return understood(file, text, environ, is_open=is_open)


def place(path: str | None, environ: Mapping[str, str]) -> str:
    """Where the file is, or would be."""
    return os.path.abspath(path or environ.get("QUELL_CONFIG") or usual_file(environ))


def understood(file: str, text: bytes, environ: Mapping[str, str], *, is_open: bool = False) -> Loaded:
    """What a text says as that file. UsageError, as `load`."""
    tables = _parsed(file, text)
    _known(file, "table", tables, list(TABLES))
    origins = dict.fromkeys(_keys(tables), "file")
    settings = _converted(f"{file}: settings", "setting", _table(file, "settings", tables), Settings)
    defaults = _converted(f"{file}: defaults", "default", _table(file, "defaults", tables), Defaults)
    for name in Settings.__struct_fields__:
        if value := _variable(environ, "settings", name, origins):
            settings = msgspec.structs.replace(settings, **{name: _seconds(f"QUELL_{name.upper()}", value)})
    for name in Defaults.__struct_fields__:
        if value := _variable(environ, "defaults", name, origins):
            defaults = msgspec.structs.replace(defaults, **{name: value})

    providers = tuple(_provider(file, name, table) for name, table in _each(file, "models", tables))
    agents = tuple(_agent(file, name, table, defaults) for name, table in _each(file, "agents", tables))
    written = tuple(secret for one in agents for secret in secrets_in(one.env))
    keys = (environ.get(one.key_env, "").strip() for one in providers if one.key_env)
    placed = (secret for one in providers for secret in secrets_of(one.base_url))
    secrets = (*written, *(key for key in keys if can_be_secret(key)), *placed)
    warning = f"{file} holds secrets, and others may read it: chmod 600 {file}"
    idle = [one.name for one in agents if not one.network and one.isolation == "none"]
    warnings = (
        *_not_read(environ),
        *((warning,) if written and is_open else ()),
        *(
            f"{file}: agents.{name}.network is of a sandbox: without isolation it keeps nobody off the net"
            for name in idle
        ),
    )
    return Loaded(settings, agents, file, secrets, warnings, defaults, providers, origins)


# -- the text


def _read(path: str | None, environ: Mapping[str, str]) -> tuple[str, bytes, bool]:
    """Its path and what is in it, and whether others may read it."""
    named = (environ.get("QUELL_CONFIG") or None) if path is None else path
    file = os.path.abspath(usual_file(environ) if named is None else named)
    try:
        with open(file, "rb") as opened:
            return file, opened.read(), bool(os.fstat(opened.fileno()).st_mode & 0o044)
    except (FileNotFoundError, NotADirectoryError):
        if named is not None:
            raise UsageError(f"there is no file {file}") from None
        return "", b"", False
    except (OSError, ValueError) as error:
        raise UsageError(f"{file!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _parsed(file: str, text: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(text.decode())
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{file} is no TOML: what is on line {line} is no UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no TOML: {error}") from None


def _keys(tables: dict[str, Any], above: str = "") -> Iterable[str]:
    """Every key that has a value, with its tables before it."""
    for name, value in tables.items():
        if isinstance(value, dict):
            yield from _keys(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _variable(environ: Mapping[str, str], table: str, name: str, origins: dict[str, str]) -> str:
    variable = f"QUELL_{name.upper()}"
    if value := environ.get(variable, "").strip():
        origins[f"{table}.{name}"] = variable
    return value


def _not_read(environ: Mapping[str, str]) -> Iterable[str]:
    """A variable that is nearly one of ours is told of; others may be a plugin's."""
    known = [one.upper() for kind in (Settings, Defaults) for one in kind.__struct_fields__] + ["CONFIG", "STATE_DIR"]
    for name in sorted(name for name in environ if name.startswith("QUELL_")):
        word = name.removeprefix("QUELL_")
        if word not in known and (near := get_close_matches(word, known, 1, 0.75)):
            yield f"{name} is not read; did you mean QUELL_{near[0]}?"


# -- its tables


def _table(file: str, name: str, tables: dict[str, Any], key: str = "") -> dict[str, Any]:
    found = tables.get(key or name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{file}: {name} is a table, [{name}], not {_shown(found)}")
    return found


def _each(file: str, name: str, tables: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    found = _table(file, name, tables)
    return [(one, _table(file, f"{name}.{one}", found, one)) for one in found]


def _shown(value: object) -> str:
    """A text may be a secret that stands at the wrong place."""
    return repr(value) if isinstance(value, int | float) else "a text" if isinstance(value, str) else "a list"


def _known(where: str, what: str, given: Iterable[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise UsageError(f"{where}: there is no {what} {name!r}; {what_there_is(f'{what}s', name, known)}")


def _converted(where: str, what: str, table: dict[str, Any], kind: type[T], **given: Any) -> T:
    """A table as a type, key by key, so that whatever is wrong is named."""
    fields = {one.name: one.type for one in msgspec.structs.fields(kind) if one.name != "name"}
    _known(where, what, table, list(fields))
    for name, value in table.items():
        key = f"{where}.{name}"
        if isinstance(fields[name], type) and issubclass(fields[name], msgspec.Struct):
            if not isinstance(value, dict):
                raise UsageError(f"{key} is a table, not {_shown(value)}")
            given[name] = _converted(key, "limit", value, fields[name])
            continue
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{key} is a number, not {value}")
        given[name] = _value(key, value, fields[name])
    return kind(**given)


def _value(key: str, value: Any, kind: Any) -> Any:
    """As its key takes it. A value is not repeated: it may be a secret that stands at the wrong place."""
    if get_origin(kind) is dict and isinstance(value, dict):
        names, values = get_args(kind)
        return {_named(key, name, names): _value(f"{key}.{name}", one, values) for name, one in value.items()}
    try:
        return msgspec.convert(value, kind)
    except (ValueError, TypeError):
        near = get_close_matches(value[:100], get_args(kind), 1) if _is_choice(kind) and isinstance(value, str) else []
        raise UsageError(f"{key} takes {takes(kind)}{f'; did you mean {near[0]}?' if near else ''}") from None


def _named(key: str, name: str, kind: Any) -> str:
    try:
        return str(msgspec.convert(name, kind))
    except ValueError:
        raise UsageError(f"{key}: {name!r} is no name of a variable") from None


def _is_choice(kind: Any) -> bool:
    return get_origin(kind) is Literal


def takes(kind: Any) -> str:
    """What a key takes, for a person."""
    if kind in (Count, Amount):
        return "a whole number, 0 or more" if kind is Count else "a number, 0 or more"
    if _is_choice(kind):
        words = [one or "nothing (as '')" for one in get_args(kind)]
        return f"{', '.join(words[:-1])} or {words[-1]}"
    if get_origin(kind) in (tuple, dict):
        return 'a list of words, as ["one", "other"]' if get_origin(kind) is tuple else "a table"
    return "true or false" if kind is bool else "a text"


def _agent(file: str, name: str, table: dict[str, Any], defaults: Defaults) -> Agent:
    where = f"{file}: agents.{name}"
    if NAME.fullmatch(name) is None:
        raise UsageError(f"{file}: agents.{name!r} is no name of an agent: {NAME_RULE}")
    for key in table["approval"] if isinstance(table.get("approval"), dict) else ():
        try:
            rule(key)
        except ValueError as error:
            raise UsageError(f"{where}.approval: the rule {key!r} makes no sense: {error}") from None
    start = BUILT_IN.get(name) or Agent(name=name, model=defaults.model or SCRIPTED.model)
    return _converted(where, "key", table, Agent, **msgspec.structs.asdict(start))


def _provider(file: str, name: str, table: dict[str, Any]) -> Provider:
    where = f"{file}: models.{name}"
    for key in table:
        if key.lower() in KEYS:
            variable = f"{''.join(char if char.isalnum() else '_' for char in name).upper()}_API_KEY"
            raise UsageError(
                f"{where}.{key}: a key does not belong into this file; put it into a variable and name that:"
                f' key_env = "{variable}"'
            )
    found = _converted(where, "key", table, Provider, name=name)
    if found.key_env and not found.key_env.isidentifier():
        raise UsageError(f"{where}.key_env is the name of the variable that holds the key, not the key")
    if found.base_url:
        _check_address(f"{where}.base_url", found.base_url)
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{where}: a name of models is a small letter, then small letters, digits, `_` and `-`")
    if name in TAKEN:
        raise UsageError(f"{where}: {name} comes with Quell and is something else; choose another name")
    return found


def _check_address(key: str, url: str) -> None:
    """Not shown: it may hold a password."""
    try:
        parts = urlsplit(url)
        bad = parts.scheme not in ("http", "https") or not parts.hostname or (parts.port is not None and not parts.port)
    except ValueError:
        raise UsageError(f"{key} is no address; it looks like https://example.org/v1") from None
    if bad:
        raise UsageError(f"{key} is no address; it looks like https://example.org/v1")
    if parts.username or parts.password:
        raise UsageError(f"{key} holds a name or a password: put the key into a variable and name that with key_env")


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise UsageError(f"{name} is a number of seconds, not {text!r}")
    return value
