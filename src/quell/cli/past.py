"""Sessions as their logs have them: read beside whoever writes, and never more of a log than is asked for."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..events import Event, MessageUser, ModelRequested, SessionConfigured, SessionForked, TurnEnded, decode
from ..stores.reader import PAGE, select, select_newest
from ..stores.schema import check, connect_readonly, damaged, refusal
from ..supervise.state import owner_of
from .places import LOG, Known
from .screen import one_line

if TYPE_CHECKING:
    from ..ports import Row

ASKED = 300
"""Characters of a message in a list."""


@dataclass(frozen=True)
class Digest:
    """A session, as a list shows it."""

    known: Known
    agent: str
    model: str
    asked: str
    """Its first message."""
    changed: float
    state: str
    """As the server has it; without one `running`, `idle`, `interrupted` or `closed`, as far as the log tells."""


class Past:
    """Of one state directory. StoreError where its log cannot be read."""

    def __init__(self, connection: sqlite3.Connection, folder: str) -> None:
        self._connection = connection
        self.owned = owner_of(folder) is not None
        self._began = max((row.seq for row in self._rows(kinds=("runtime.ready",))), default=0)
        self._chosen = {
            one.session: one
            for row in self._rows(kinds=("session.configured",))
            if isinstance(one := decode(row.body), SessionConfigured)
        }

    def awake(self, id_: str) -> bool:
        """Whether anything happened in it since whoever owns the log began."""
        last = select_newest(self._connection, id_)
        return self.owned and last is not None and last.seq > self._began

    def processes(self, id_: str) -> int:
        """How many of its commands run."""
        rows = [row for row in self._rows(session=id_, kinds=("process.",)) if row.seq > self._began]
        return sum(1 if row.kind == "process.spawned" else -1 for row in rows)

    def changed(self, known: Known) -> float:
        last = select_newest(self._connection, known.id)
        return known.opened if last is None else last.at

    def digest(self, known: Known, changed: float, state: str = "") -> Digest:
        """`state` is what somebody says who knows better."""
        chosen = self._chosen.get(known.id)
        agent, model = (known.agent, "") if chosen is None else (chosen.agent, chosen.model)
        requested = self._newest(known.id, "model.requested")
        if isinstance(requested, ModelRequested) and (chosen is None or requested.seq > chosen.seq):
            model = requested.model
        first = select(self._connection, 0, None, known.id, ("message.user",), 1)
        message = decode(first[0].body) if first else None
        asked = one_line(message.text[:ASKED]) if isinstance(message, MessageUser) else ""
        return Digest(known, agent, model, asked, changed, state or self._state(known.id))

    def _state(self, id_: str) -> str:
        turn = self._newest(id_, "turn.started", "turn.ended")
        runs = turn is not None and not isinstance(turn, TurnEnded)
        if not self.awake(id_):
            return "interrupted" if runs else "closed"
        last = select_newest(self._connection, id_)
        closed = last is not None and last.kind == "session.closed"
        return "running" if runs else "closed" if closed else "idle"

    def conversation(self, id_: str, upto: int | None = None) -> Iterator[Row]:
        """All rows of a session; those of its origin first, if it is a fork."""
        for row in self._rows(session=id_, kinds=("session.forked",)):
            forked = decode(row.body)
            if isinstance(forked, SessionForked):
                yield from self.conversation(forked.origin, forked.upto if upto is None else min(forked.upto, upto))
        yield from self._rows(session=id_, upto=upto)

    def _newest(self, id_: str, *kinds: str) -> Event | None:
        row = select_newest(self._connection, id_, kinds)
        return None if row is None else decode(row.body)

    def _rows(self, session: str | None = None, upto: int | None = None, kinds: tuple[str, ...] = ()) -> Iterator[Row]:
        after = 0
        while rows := select(self._connection, after, upto, session, kinds, PAGE):
            yield from rows
            after = rows[-1].seq


@contextmanager
def past(folder: str) -> Iterator[Past]:
    path = os.path.join(folder, LOG)
    try:
        with closing(connect_readonly(path)) as connection:
            check(connection, path)
            yield Past(connection, folder)
    except sqlite3.Error as error:
        raise refusal(path, error) from None
    except ValueError as error:  # an event that is none
        raise damaged(path, str(error)) from None
