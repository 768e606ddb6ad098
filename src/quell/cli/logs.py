"""`quell logs`: what happened, as lines or as the events themselves; -f goes on, over restarts of the server too."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from .client import ORDER, Client
from .flags import Json, MaybeId, State
from .following import Follower, Patience
from .screen import Screen, note
from .transcript import Event, Transcript

PAGE = 1000  # events that are asked for at once


def logs(
    session: MaybeId = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what happens next, until Ctrl+C.")] = False,
    last: Annotated[int | None, typer.Option("-n", metavar="LINES", min=0, help="Only the last so many lines.")] = None,
    after: Annotated[int, typer.Option("--after", metavar="SEQ", min=0, help="Only what is after that event.")] = 0,
    as_json: Json = False,
    state: State = None,
) -> int:
    """What happened in a session, or in all of them.

    With --json: one event a line, as they are in the log. Exit codes: 0; 125 a fault of quell's or of its options.

    \b
    quell logs build -n 20
    quell logs -f
    quell logs build --json | jq .kind
    """
    client, screen = Client(state), Screen()
    id_ = client.card(session)["id"] if session is not None else ""
    transcript = Transcript(sessions=not id_)
    kept: deque[Any] = deque(maxlen=None if last is None else min(last, sys.maxsize))
    cursor = after
    for event in past(client, id_, after):
        cursor = event["seq"]
        if last is not None:
            kept.extend([event] if as_json else transcript.lines(event))
        else:
            show(screen, transcript, event, as_json)
    for one in kept:
        screen.json(one) if as_json else screen.line(*one)
    if follow:
        _follow(client, screen, transcript, id_, cursor, as_json)
    return 0


def show(screen: Screen, transcript: Transcript, event: Event, as_json: bool) -> None:
    if as_json:
        screen.json(event)
    else:
        screen.lines(transcript.lines(event))


def past(client: Client, session: str, after: int) -> Iterator[Event]:
    """The events that there are already, the oldest first."""
    if not session:
        yield from _past_of_all(client, after)
        return
    while True:
        page = client.get("sessions", session, "events", within=ORDER, after=after, limit=PAGE)["events"]
        yield from page
        if not page:
            return
        after = page[-1]["seq"]


def _past_of_all(client: Client, after: int) -> Iterator[Event]:
    upto = client.get("state")["seq"]
    if after >= upto:
        return
    follower = Follower(client, after=after)
    patience = Patience(follower, note, limit=10.0)
    try:
        while True:
            for message in follower.take(1.0):
                if message["type"] == "events":
                    yield from (event for event in message["events"] if event["seq"] <= upto)
                    if message["seq"] >= upto:
                        return
            patience.look()
    finally:
        follower.close()


def _follow(client: Client, screen: Screen, transcript: Transcript, id_: str, cursor: int, as_json: bool) -> None:
    follower = Follower(client, session=id_, after=cursor)
    patience = Patience(follower, note)
    try:
        while True:
            for message in follower.take(1.0):
                for event in message["events"] if message["type"] == "events" else ():
                    show(screen, transcript, event, as_json)
            patience.look()
    except KeyboardInterrupt:
        return
    finally:
        follower.close()
