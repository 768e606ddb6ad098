"""Reading the log: in order of `seq`, beside the writer, whom it never holds up."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from queue import SimpleQueue
from typing import Any

from ..errors import StoreError
from ..ports import Row
from .schema import IS_RARE, RARE, check, connect_readonly, refusal

PAGE = 1000
"""Rows that `read_rows` takes at once: a reader that stays for long would keep the -wal from being taken over."""

Done = Callable[[Any], None]
Failed = Callable[[StoreError], None]
Look = Callable[[sqlite3.Connection], Any]

_SESSIONS = """
WITH RECURSIVE found (session) AS (
    SELECT min(session) FROM events WHERE session > ''
    UNION ALL
    SELECT (SELECT min(session) FROM events WHERE session > found.session) FROM found WHERE found.session IS NOT NULL
)
SELECT session FROM found WHERE session IS NOT NULL
"""
"""A step along the index for each session, not for each event."""


def select(
    connection: sqlite3.Connection,
    after: int,
    upto: int | None,
    session: str | None,
    kinds: Sequence[str],
    limit: int,
) -> list[Row]:
    table, where, values = "events", ["seq > ?"], [after]  # type: str, list[str], list[Any]
    if upto is not None:
        where.append("seq <= ?")
        values.append(upto)
    if session is not None:
        where.append("session = ?")
        values.append(session)
    if kinds:
        either = []
        for kind in kinds:
            either.append("kind >= ? AND kind < ?" if kind.endswith(".") else "kind = ?")
            values += (kind, f"{kind[:-1]}/") if kind.endswith(".") else (kind,)  # the next sign after the dot
        where.append(f"({' OR '.join(either)})")
        if session is None and all(kind.startswith(RARE) for kind in kinds):
            table = "events INDEXED BY events_rare"
            where.append(IS_RARE)  # in the words of that index, else SQLite does not know that it may use it
    values.append(max(0, limit))
    text = f"SELECT seq, at, kind, session, body FROM {table} WHERE {' AND '.join(where)} ORDER BY seq LIMIT ?"
    return [Row(*found) for found in connection.execute(text, values)]


def select_newest(connection: sqlite3.Connection, session: str, kinds: Sequence[str] = ()) -> Row | None:
    """The last event of a session, or the last of these kinds: found from its end."""
    which = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
    text = f"SELECT seq, at, kind, session, body FROM events WHERE session = ?{which} ORDER BY seq DESC LIMIT 1"
    found = connection.execute(text, (session, *kinds)).fetchone()
    return None if found is None else Row(*found)


def select_sessions(connection: sqlite3.Connection) -> list[str]:
    return [session for (session,) in connection.execute(_SESSIONS)]


class Reader:
    """A thread with a connection of its own. The writer starts it, gives it work, and ends it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._jobs: SimpleQueue[tuple[Look, Done, Failed] | None] = SimpleQueue()
        self._closing = threading.Lock()  # held while the connection may be used from outside, or goes
        self._connection: sqlite3.Connection | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="quell store reader", daemon=True)
        self._thread.start()

    def put(self, look: Look, done: Done, failed: Failed) -> None:
        self._jobs.put((look, done, failed))

    def close(self) -> None:
        """Breaks off what is being read."""
        self._ending = True
        self._jobs.put(None)
        while self._thread.is_alive():
            with self._closing:
                if self._connection is not None:
                    self._connection.interrupt()
            self._thread.join(0.01)  # again, should it have been between two statements

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            look, done, failed = job
            try:
                if self._ending:
                    raise StoreError(f"the log {self._path} is closed")
                rows = look(self._open())
            except StoreError as error:
                failed(error)
            except sqlite3.Error as error:
                closed = StoreError(f"the log {self._path} is closed")
                failed(closed if self._ending else refusal(self._path, error))
            except Exception as error:  # noqa: BLE001  a boundary: told to whoever asked
                failed(StoreError(f"the log {self._path} cannot be read: {type(error).__name__}: {error}"))
            else:
                done(rows)
        with self._closing:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect_readonly(self._path)
        return self._connection


def read_rows(path: str | os.PathLike[str]) -> Iterator[Row]:
    """Every row of a log, which may be in use, or was left by a crash. StoreError where it cannot be read.

    Writes nothing beside it, but for SQLite's -shm where a crash left a -wal without one.
    """
    where = os.path.abspath(os.fspath(path))
    if not os.path.isfile(where):
        raise StoreError(f"there is no log {where}")
    after = 0
    try:
        with closing(connect_readonly(where)) as connection:
            if not check(connection, where):
                return  # made, and not begun
            while rows := select(connection, after, None, None, (), PAGE):
                yield from rows
                after = rows[-1].seq
    except sqlite3.Error as error:
        raise refusal(where, error) from None
