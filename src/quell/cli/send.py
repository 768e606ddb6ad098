"""`quell send`: a message to a session, and its answer on stdout as it comes. Letting go cancels nothing (H20)."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from ..errors import UsageError
from .client import Client
from .codes import ENDS, FAILED, INTERRUPTED, STOPPED
from .flags import Json, State, complete_agent, complete_session
from .following import Follower, Patience
from .said import Said
from .screen import Screen, note
from .transcript import Event, Transcript

RETURN = 30.0  # seconds that a server which restarts is waited for


def send(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="ID TEXT...",
            help="The session and what to say; - reads it from standard input. With --new, only what to say.",
            autocompletion=complete_session,
        ),
    ],
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Only send; do not wait for the answer.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Open a session first.")] = False,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="With --new: who answers.", autocompletion=complete_agent),
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="With --new: where; by default here.")] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="With --new: what it is called.")] = None,
    as_json: Json = False,
    state: State = None,
) -> int:
    """Send a message and show the answer as it comes: the answer on stdout, everything else on stderr.

    Ctrl+C only stops watching: the turn goes on. With --json: the events of the turn, one a line.

    Exit codes: 0 answered; 1 the turn failed or was interrupted; 3 it was stopped, or the message was parked or
    discarded; 4 it met a limit; 125 a fault of quell's or of its options; 130 Ctrl+C.

    \b
    quell send build 'and now the tests'
    quell send --new --title build '$ npm test'
    git diff | quell send --new -
    """
    for flag, value in (("--agent", agent), ("--cwd", cwd), ("--title", title)):
        if value is not None and not new:
            raise UsageError(f"{flag} is for a new session: add --new")
    if not new and len(words) < 2:
        raise UsageError("quell send needs a session and what to say: quell send ID TEXT, or quell send --new TEXT")
    text = " ".join(words if new else words[1:])
    text = sys.stdin.read() if text == "-" else text
    if not text.strip():
        raise UsageError("there is nothing to send")
    client = Client(state)
    if new:
        wish = {"agent": agent, "title": title, "cwd": os.path.abspath(cwd or ".")}
        session = client.post("sessions", body={name: value for name, value in wish.items() if value is not None})["id"]
        note(f"session {session}")
    else:
        session = client.card(words[0])["id"]
    said = client.post("sessions", session, "messages", body={"text": text})
    if no_wait:
        if as_json:
            Screen().json({"session": session, **said})
        else:
            Screen().line(f"message {said['message']} to session {session}{', queued' if said['queued'] else ''}")
        return 0
    if said["queued"]:
        note(f"queued as message {said['message']}: the session is busy")
    return Watch(client, session, said["message"], as_json).run()


class Watch:
    """Shows the turn that answers one message."""

    def __init__(self, client: Client, session: str, message: int, as_json: bool) -> None:
        self._client = client
        self._session = session
        self._message = message
        self._json = as_json
        self._turn = 0
        self._out = Screen(1)
        self._aside = Screen(2)
        self._transcript = Transcript(speech=False)
        self._speech = Speech(self._out)

    def run(self) -> int:
        try:
            with contextlib.closing(Follower(self._client, session=self._session, after=self._message)) as follower:
                return self._follow(follower)
        except KeyboardInterrupt:
            self._speech.end()
            note(f"detached; the session goes on: quell attach {self._session}, quell stop {self._session}")
            return INTERRUPTED

    def _follow(self, follower: Follower) -> int:
        patience = Patience(follower, note, RETURN)
        while True:
            for message in follower.take(1.0):
                for event in message["events"] if message["type"] == "events" else ():
                    code = self._take(event)
                    if code is not None:
                        return code
            patience.look()

    def _take(self, event: Event) -> int | None:
        """The exit code, when this was the end of it."""
        kind = event["kind"]
        if kind == "turn.started" and event.get("cause") == self._message:
            self._turn = event["turn"]
        about_us = kind in ("queue.parked", "queue.discarded") and self._message in event.get("messages", [])
        mine = self._turn != 0 and event.get("turn") == self._turn
        if mine or about_us or kind == "session.deleted":
            self._show(event)
        if about_us or kind == "session.deleted":
            return STOPPED
        return ENDS.get(event["end"], FAILED) if mine and kind == "turn.ended" else None

    def _show(self, event: Event) -> None:
        if self._json:
            self._out.json(event)
            return
        self._speech.take(event)
        if lines := self._transcript.lines(event):
            if event["kind"] == "turn.ended" and event["end"] == "completed":
                return
            self._speech.end()
            self._aside.lines(lines)


class Speech:
    """What a model says, as it comes; whatever else is shown begins on a line of its own.

    A pipe or a file gets of each answer only what is whole, as by `quell run`.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._said = Said()
        self._open = False  # a line has no end yet

    def take(self, event: Event) -> None:
        kind, text = event["kind"], event.get("text", "")
        if kind == "model.requested":
            self.end()
            self._said.begin()
        elif kind == "model.restarted":
            self._said.begin()
        elif kind == "message.delta" or (kind == "message.done" and not self._said.ends_with(text)):
            self._said.add(text)
        if self._screen.terminal or kind in ("model.answered", "message.done", "tool.requested", "turn.ended"):
            self._tell()
        if kind == "message.done":
            self.end()

    def _tell(self) -> None:
        text = self._said.rest()
        if text:
            self._screen.write(text)
            self._open = not text.endswith("\n")

    def end(self) -> None:
        if self._open:
            self._screen.write("\n")
        self._open = False
