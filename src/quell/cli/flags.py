"""The flags and arguments that several commands have, what completes them, and commands that have commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import QuellError, UsageError
from .words import nearest

if TYPE_CHECKING:
    from ..configfile import Loaded
    from .client import Client

QUICK = 0.5  # seconds that a completion may take: who waits for it holds a key
_LONGEST = 40  # characters of a title beside its id


class Words(TyperGroup):
    """The commands of a command: a wrong one is told in our words."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            hint = nearest(word, self.commands)
            raise UsageError(f"{ctx.command_path} has no command '{word}'{hint}; see {ctx.command_path} --help")
        return super().resolve_command(ctx, args)


def group(purpose: str) -> typer.Typer:
    """An app for the commands of a command, such as those of `quell agent`."""
    return typer.Typer(cls=Words, add_completion=False, rich_markup_mode=None, help=purpose)


def _client(ctx: typer.Context) -> Client:
    from .client import Client

    return Client(ctx.params.get("state"))


def complete_session(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of the server's sessions, with their titles; nothing when there is no server."""
    try:
        listed = _client(ctx).get("sessions", within=QUICK)["sessions"]
        return [(card["id"], _title(card)) for card in listed if card["id"].startswith(incomplete)]
    except (QuellError, OSError, LookupError, TypeError):
        return []


def complete_running(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The same, and those of other terminals."""
    found = complete_session(ctx, incomplete)
    if ctx.params.get("state") is None:
        from . import terminals

        try:
            cards = terminals.cards(_client(ctx).folder)
            found += [(card["id"], _title(card)) for card in cards if card["id"].startswith(incomplete)]
        except (QuellError, OSError, ValueError):
            return found
    return found


def _title(card: dict[str, Any]) -> str:
    """Shells evaluate what completion tells them: only letters, digits and blanks of a title get there."""
    return _plain(card["title"] or card["asked"] or card["agent"])


def _plain(words: str) -> str:
    return "".join(char if char.isascii() and char.isalnum() else " " for char in words)[:_LONGEST].strip()


def complete_agent(ctx: typer.Context, incomplete: str) -> list[str]:
    try:
        names = [one["name"] for one in _client(ctx).get("agents", within=QUICK)["agents"]]
        return [name for name in names if name.startswith(incomplete)]
    except (QuellError, OSError, LookupError, TypeError):
        return []


# -- without a server


def complete_past(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of sessions of all logs, with their titles: the newest come last."""
    try:
        from . import places

        state = ctx.params.get("state")
        known = places.everywhere(places.folders() if state is None else [state])
        found = [one for one in known if not one.parent and one.id.startswith(incomplete)]
        return [(one.id, _plain(one.title or one.agent)) for one in sorted(found, key=lambda one: one.opened)]
    except (QuellError, OSError, ValueError):
        return []


def complete_known_agent(ctx: typer.Context, incomplete: str) -> list[str]:
    try:
        from .composing import agents_of

        return [name for name in agents_of(_loaded(ctx)) if name.startswith(incomplete)]
    except (QuellError, OSError):
        return []


def complete_model(ctx: typer.Context, incomplete: str) -> list[str]:
    """Providers: which models one has, only it could tell."""
    try:
        from .offered import providers

        names = [name if name == "scripted" else f"{name}:" for name in providers(_loaded(ctx))]
        return [name for name in names if name.startswith(incomplete)]
    except (QuellError, OSError):
        return []


def complete_tool(incomplete: str) -> list[str]:
    from .offered import TOOLS

    return [name for name in TOOLS if name.startswith(incomplete)]


def _loaded(ctx: typer.Context) -> Loaded:
    import os

    from ..configfile import load

    return load(ctx.params.get("config"), os.environ)


# -- the flags


def named(flag: str, value: str | None) -> str | None:
    """The same, unless it is empty: that is a variable of a script that is not set."""
    if value == "":
        raise UsageError(f"{flag} is empty: say what it is, or leave it out")
    return value


def _state(value: str | None) -> str | None:
    return named("--state", value)


def _config(value: str | None) -> str | None:
    return named("--config", value)


State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="The server's state directory; by default this user's usual one.",
        callback=_state,
    ),
]
SomeState = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Only those of this state directory; by default all of this user.",
        callback=_state,
    ),
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The file of settings, as TOML; by default this user's usual one.",
        callback=_config,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The same as JSON, for programs.")]
Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A session: its id, the beginning of it (4 characters or more), or its title.",
        autocompletion=complete_session,
    ),
]
MaybeId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="A session: its id, the beginning of it (4 characters or more), or its title.",
        autocompletion=complete_session,
    ),
]

# -- of what has a runtime of its own

RunAgent = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Who does it; see quell agent.", autocompletion=complete_known_agent),
]
RunModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="What answers, such as openai:gpt-5 or local:llama3.",
        autocompletion=complete_model,
    ),
]
RunStrategy = Annotated[
    str | None, typer.Option("--strategy", metavar="NAME", help="How the next step is chosen: tools, or react.")
]
RunCwd = Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Where; by default here.")]
RunYes = Annotated[bool, typer.Option("--yes", help="Say yes to whatever is asked; what is denied stays so.")]
RunResume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="ID",
        help="Go on with a session: its id, the beginning of it, or its title.",
        autocompletion=complete_past,
    ),
]
RunMaxSteps = Annotated[int | None, typer.Option("--max-steps", metavar="N", min=1, help="Steps of a turn, at most.")]
RunState = Annotated[
    str | None, typer.Option("--state", metavar="DIR", help="Keep the session there; by default at a usual place.")
]
RunConfig = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Settings, agents and models, as TOML.")
]
RunTitle = Annotated[str | None, typer.Option("--title", metavar="TEXT", help="What the session is called.")]
