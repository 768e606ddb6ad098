"""`quell attach`: see a session as it goes on, and speak to it. Letting go of it changes nothing for it (H20)."""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque
from collections.abc import Callable
from typing import Any

from ..errors import QuellError, UsageError
from .approve import chosen, give
from .client import ANSWER, Call, Client, path
from .flags import Id, Json, State
from .following import Follower, Patience
from .logs import past
from .receipts import describe
from .screen import Line, Screen, note, one_line
from .send import Speech
from .transcript import Event, Transcript

SHOWN = 20  # lines of what was before
HELP = """\
A line is sent as a message; while the session is busy it waits in the queue. A first / is doubled to be sent.
  /stop         stop the turn        /force        stop it by force
  /queue        what waits           /release      let parked messages be answered
  /discard      drop them            /detach       leave; the session goes on (so do Ctrl+C, Ctrl+D)
An open question, or that of the number N, is answered with a reason if there is one:
  /approve [N]  yes, for once        /session [N]  yes, for exactly this in this session
  /deny [N]     no                   /always [N]   yes, for exactly this always
"""


def attach(session: Id, as_json: Json = False, state: State = None) -> int:
    """Follow a session and type to it; /help tells what else can be typed.

    Ctrl+C and Ctrl+D only detach. With --json: the events on stdout, one a line.

    Exit codes: 0 detached, or the session was deleted; 125 a fault of quell's or of its options.

    \b
    quell attach build
    """
    client = Client(state)
    return Attached(client, client.card(session), as_json).run()


class Attached:
    def __init__(self, client: Client, card: dict[str, Any], as_json: bool) -> None:
        self._client = client
        self._id = str(card["id"])
        self._json = as_json
        self._out = Screen(1)
        self._aside = Screen(2)
        self._transcript = Transcript(speech=False)
        self._speech = Speech(self._out)
        self._typed = b""
        self._calls: list[tuple[Call, Callable[[Any], None]]] = []
        self._left = False
        self._asked: set[int] = set()  # questions that were shown
        self._title = f" {one_line(card['title'])}" if card["title"] else ""

    def run(self) -> int:
        try:
            with contextlib.closing(Follower(self._client, session=self._id, after=self._catch_up())) as follower:
                self._follow(follower)
        except KeyboardInterrupt:
            self._speech.end()
        finally:
            for call, _ in self._calls:
                call.close()
        note("detached; the session goes on")
        return 0

    def _follow(self, follower: Follower) -> None:
        patience = Patience(follower, note)
        note(f"attached to {self._id}{self._title}; /help tells what can be typed, Ctrl+C detaches")
        while not self._left:
            ready = self._wait(follower)
            if follower.fileno() in ready or follower.fileno() < 0:
                for message in follower.take(0.1):
                    for event in message["events"] if message["type"] == "events" else ():
                        self._show(event)
            patience.look()
            self._hear(ready)
            if 0 in ready:
                self._read()

    def _catch_up(self) -> int:
        cursor, lines = 0, deque[Line](maxlen=SHOWN)
        before = Transcript()
        for event in past(self._client, self._id, 0):
            cursor = event["seq"]
            self._look(event)
            if not self._json:
                lines.extend(before.lines(event))
        self._out.lines(list(lines))
        return cursor

    def _wait(self, follower: Follower) -> set[int]:
        poller = select.poll()
        for fd in (0, follower.fileno(), *(call.fileno() for call, _ in self._calls)):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        return {fd for fd, _ in poller.poll(100 if follower.fileno() < 0 else 1000)}

    def _show(self, event: Event) -> None:
        if self._json:
            self._out.json(event)
        else:
            self._speech.take(event)
            if lines := self._transcript.lines(event):
                self._speech.end()
                self._out.lines(lines)
        self._look(event)
        self._left = self._left or event["kind"] == "session.deleted"

    def _look(self, event: Event) -> None:
        if event["kind"] == "approval.asked":
            self._asked.add(event["seq"])

    # -- what is typed

    def _read(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            self._left = True
            return
        *lines, self._typed = (self._typed + data).split(b"\n")
        for line in lines:
            self._obey(line.decode(errors="replace").strip())

    def _obey(self, line: str) -> None:
        try:
            if line.startswith("/") and not line.startswith("//"):
                word, _, rest = line[1:].partition(" ")
                if word not in _COMMANDS:
                    raise UsageError(f"there is no /{word}; /help tells what there is")
                _COMMANDS[word](self, rest.strip())
            elif line:
                self._begin("messages", {"text": line[line.startswith("//") :]}, self._sent)
        except QuellError as error:
            note(str(error))

    def _begin(self, what: str, body: dict[str, Any], then: Callable[[Any], None]) -> None:
        """Ask without waiting: what happens is shown meanwhile."""
        call = self._client.begin("POST", path("sessions", self._id, *what.split("/")), body)
        self._calls.append((call, then))

    def _hear(self, ready: set[int]) -> None:
        for one in [one for one in self._calls if one[0].fileno() in ready]:
            self._calls.remove(one)
            call, then = one
            try:
                then(call.answer(ANSWER))
            except QuellError as error:
                note(str(error))

    def _sent(self, said: Any) -> None:
        if said["queued"]:
            note(f"queued as message {said['message']}")

    def _stop(self, _rest: str, force: bool = False) -> None:
        self._begin("stop", {"reach": "turn", "force": force}, self._stopped)

    def _force(self, rest: str) -> None:
        self._stop(rest, force=True)

    def _stopped(self, answer: Any) -> None:
        self._speech.end()
        (self._aside if self._json else self._out).lines(describe(answer["receipt"], answer["confirmed"]))

    def _queue(self, _rest: str) -> None:
        waiting = self._client.get("sessions", self._id, "queue")["queue"]
        for one in waiting:
            self._aside.line(f"{one['message']} {'parked' if one['parked'] else 'waits'}  {one_line(one['text'], 200)}")
        if not waiting:
            note("nothing waits")

    def _release(self, _rest: str) -> None:
        self._begin("queue/release", {}, lambda answer: note(f"released {_numbers(answer)}"))

    def _discard(self, _rest: str) -> None:
        self._begin("queue/discard", {}, lambda answer: note(f"discarded {_numbers(answer)}"))

    def _approve(self, rest: str, allow: bool = True, extent: str = "once") -> None:
        number, _, reason = rest.partition(" ")
        if number and not number.isdecimal():
            raise UsageError("a question is named by its number: /approve 12")
        card = self._client.get("sessions", self._id)
        question = chosen(card, int(number) if number else None)
        if allow and not number and question["request"] not in self._asked:  # it came while this was typed for another
            raise UsageError(f"question {question['request']} was not shown here yet: look at it, and answer it then")
        give(self._client, question, allow, reason.strip(), extent)

    def _deny(self, rest: str) -> None:
        self._approve(rest, allow=False)

    def _for_session(self, rest: str) -> None:
        self._approve(rest, extent="session")

    def _always(self, rest: str) -> None:
        self._approve(rest, extent="always")

    def _detach(self, _rest: str) -> None:
        self._left = True

    def _help(self, _rest: str) -> None:
        self._aside.write(HELP)


def _numbers(answer: Any) -> str:
    return ", ".join(map(str, answer["messages"])) or "nothing: no message is parked"


_COMMANDS: dict[str, Callable[[Attached, str], None]] = {
    "stop": Attached._stop,
    "force": Attached._force,
    "queue": Attached._queue,
    "release": Attached._release,
    "discard": Attached._discard,
    "approve": Attached._approve,
    "session": Attached._for_session,
    "always": Attached._always,
    "deny": Attached._deny,
    "detach": Attached._detach,
    "help": Attached._help,
}
