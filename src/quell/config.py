"""Typed settings, each named once with its default, and the file that changes them.

They are read when used: a change acts on the next use. What the file says and makes no sense is refused, by its name.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

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
    """Of one turn, each with its own end; 0 is no limit, but for sub-agents, of whom there are none then."""

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
    """By `tool`, by `tool(pattern)`, and `*` for all others. What nothing is said of is asked, but for reading."""
    isolation: Literal["none", "bwrap"] = "none"
    """Where its commands run: `bwrap` is a sandbox in which only the working directory can be written."""
    network: bool = True
    """In that sandbox."""
    effort: Effort = ""
    """How much the model is to think; empty is its own default."""
    limits: Limits = Limits()
    env: dict[Variable, Value] = {}
    """For its commands, besides the few variables that every command has. A sub-agent has its own agent's."""

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
    """The variable that holds the key; empty is that of the kind."""
    api: Literal["", "responses", "chat"] = ""
    """Of the kind openai: empty is `responses` for OpenAI itself and `chat` for any other address."""
    context: Count = 0
    """Tokens that its models can read, where that is known."""
    price_input: Amount = 0.0
    """Dollars for a million tokens."""
    price_cached: Amount = 0.0
    price_output: Amount = 0.0


class Defaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `quell run` and `quell chat` take where they are not told."""

    agent: str = ""
    """Empty: `scripted`, or `assistant` where a model is named."""
    model: str = ""
    """For agents that name none of their own; `provider:model`."""


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
    near = get_close_matches(wanted, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{hint}there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"


# -- secrets

LEAST = 8
"""Characters of a secret. A shorter one would be found in other words."""

_SECRET = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY|(^|_)PASS($|_)|_PWD$|_PAT$"
)
_NOT_ITSELF = re.compile(r"_(FILE|PATH|DIR|SOCK|SOCKET|URL|URI|ENDPOINT|HOST|PORT|NAME|USER|TYPE|CMD|COMMAND)$")
_NO_SECRETS = frozenset("changeme disabled localhost password passw0rd postgres required scripted undefined".split())


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by its name: `GITHUB_TOKEN` does, `SSH_AUTH_SOCK` and `GPG_KEY` do not.

    Nor does one that says where a secret is (`…_FILE`, `…_URL`, a path that is there), a short one, a number of
    tokens, or a word that is everybody's: masking `postgres` would protect nothing and spoil every text with it.
    """
    upper, value = name.upper(), value.strip()
    if _SECRET.search(upper) is None or _NOT_ITSELF.search(upper) is not None:
        return False
    if len(value) < LEAST or value.lower() in _NO_SECRETS or ("TOKENS" in upper and value.isdigit()):
        return False
    return not (value.startswith("/") and os.path.exists(value))


def secrets_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets of an environment."""
    return tuple(value.strip() for name, value in environ.items() if is_secret(name, value))


# -- the file


@dataclass(frozen=True)
class Loaded:
    """What a file and the environment say."""

    settings: Settings
    agents: tuple[Agent, ...]
    file: str
    """The one that was read; empty if there is none."""
    secrets: tuple[str, ...]
    """Of the environments of its agents."""
    warnings: tuple[str, ...]


def load(path: str | None, environ: Mapping[str, str]) -> Loaded:
    """The file, or the one at the usual place if that is there, and over it `QUELL_<SETTING>` of the environment.

    UsageError is one sentence with the file and the key.
    """
    file, text, is_open = _read(path, environ)
    tables = _parsed(file, text)
    _known(file, "table", tables, ["settings", "agents"])
    settings = _converted(f"{file}: settings", "setting", _table(file, "settings", tables), Settings)
    agents = _table(file, "agents", tables)
    found = tuple(_agent(file, name, _table(file, f"agents.{name}", agents, name)) for name in agents)
    for name in Settings.__struct_fields__:
        if value := environ.get(f"QUELL_{name.upper()}", "").strip():
            settings = msgspec.structs.replace(settings, **{name: _seconds(f"QUELL_{name.upper()}", value)})
    secrets = tuple(secret for one in found for secret in secrets_in(one.env))
    warning = f"{file} holds secrets, and others may read it: chmod 600 {file}"
    return Loaded(settings, found, file, secrets, (warning,) if secrets and is_open else ())


def usual_file(environ: Mapping[str, str]) -> str:
    """Where the file of this user is, unless another is named."""
    folder = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):
        folder = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(folder, "quell", "config.toml")


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
    import tomllib

    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no TOML: {error}") from None


def _table(file: str, name: str, tables: dict[str, Any], key: str = "") -> dict[str, Any]:
    found = tables.get(key or name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{file}: {name} is a table, [{name}], not {_shown(found)}")
    return found


def _shown(value: object) -> str:
    """A text may be a secret that stands at the wrong place."""
    return repr(value) if isinstance(value, int | float) else "a text" if isinstance(value, str) else "a list"


def _known(where: str, what: str, given: Iterable[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise UsageError(f"{where}: there is no {what} {name!r}; {what_there_is(f'{what}s', name, known)}")


def _converted(where: str, what: str, table: dict[str, Any], kind: type[T], **given: Any) -> T:
    """A table as a type, key by key, so that whatever is wrong is named."""
    fields = {one.name: one.type for one in msgspec.structs.fields(kind) if one.name not in given}
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
        try:
            given[name] = msgspec.convert(value, fields[name])
        except (ValueError, TypeError) as error:
            raise UsageError(f"{key} makes no sense: {error}") from None
    return kind(**given)


def _agent(file: str, name: str, table: dict[str, Any]) -> Agent:
    return _converted(f"{file}: agents.{name}", "key", table, Agent, name=name)


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise UsageError(f"{name} is a number of seconds, not {text!r}")
    return value
