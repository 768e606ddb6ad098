"""The flags and arguments that several commands have, and what completes them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..errors import QuellError
from .client import Client

QUICK = 0.5  # seconds that a completion may take: who waits for it holds a key
_LONGEST = 40  # characters of a title beside its id


def complete_session(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of the server's sessions, with their titles; nothing when there is no server."""
    try:
        client = Client(ctx.params.get("state"))
        listed = client.get("sessions", within=QUICK)["sessions"]
        return [(card["id"], _title(card)) for card in listed if card["id"].startswith(incomplete)]
    except (QuellError, OSError, LookupError, TypeError):
        return []


def _title(card: dict[str, Any]) -> str:
    """Shells evaluate what completion tells them: only letters, digits and blanks of a title get there."""
    words = card["title"] or card["asked"] or card["agent"]
    return "".join(char if char.isascii() and char.isalnum() else " " for char in words)[:_LONGEST].strip()


def complete_agent(ctx: typer.Context, incomplete: str) -> list[str]:
    try:
        names = [one["name"] for one in Client(ctx.params.get("state")).get("agents", within=QUICK)["agents"]]
        return [name for name in names if name.startswith(incomplete)]
    except (QuellError, OSError, LookupError, TypeError):
        return []


State = Annotated[
    str | None,
    typer.Option("--state", metavar="DIR", help="The server's state directory; by default this user's usual one."),
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
