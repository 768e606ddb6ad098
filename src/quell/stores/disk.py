"""The connection that writes: what a call here has written is on disk when it returns, or none of it is.

A write that fails is tried again for a bounded time. Numbers are reserved ahead on disk, so that none is given twice.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from ..ports import Row
from .schema import connect, migrate

T = TypeVar("T")

BLOCK = 1_000_000
"""How far ahead numbers are reserved. After a crash the next number is above all of them."""
LOCKED_FOR = 5.0
"""Seconds that opening waits for another process's lock."""
RETRY_FOR = 10.0
"""Seconds in which a write that failed is tried again, before the log is given up."""
RETRY_FIRST, RETRY_MOST = 0.01, 1.0
"""Seconds before the first further attempt; each waits twice as long, up to the second figure."""

_values = msgspec.structs.astuple
_INSERT = "INSERT INTO events (seq, at, kind, session, body) VALUES (?, ?, ?, ?, ?)"
_RESERVE = "UPDATE meta SET value = ? WHERE name = 'reserved'"


class Disk:
    """Made, used and closed in one thread. `unwanted` says that nobody waits for the opening any more."""

    def __init__(self, path: str, unwanted: Callable[[], bool]) -> None:
        self.last = 0
        """The highest number that is on disk, or may have been given away before."""
        self.reserved = 0
        self._unwanted = unwanted
        self._connection = self._patiently(lambda: connect(path))
        try:
            self._patiently(self._begin)
        except BaseException:
            self.close()
            raise

    def write(self, rows: list[Row]) -> None:
        last = rows[-1].seq
        reserved = self.reserved if last <= self.reserved - BLOCK // 2 else last + BLOCK

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(_INSERT, map(_values, rows))
            if reserved != self.reserved:
                connection.execute(_RESERVE, (reserved,))

        self.persist(work)
        self.last, self.reserved = last, reserved

    def persist(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What comes of this, in one transaction. Raises what stayed wrong; then nothing of it is there."""
        connection, until, pause = self._connection, time.monotonic() + RETRY_FOR, RETRY_FIRST
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                found = work(connection)
                connection.execute("COMMIT")
                return found
            except sqlite3.OperationalError:  # the disk, or another process, may get over it
                self._roll_back()
                if time.monotonic() + pause > until:
                    raise
            except BaseException:  # a number that is there twice stays there
                self._roll_back()
                raise
            time.sleep(pause)
            pause = min(2 * pause, RETRY_MOST)

    def finish(self) -> None:
        """Give back the numbers that nobody got, and leave one file. What fails here costs a gap or a longer start."""
        try:
            self._connection.execute(_RESERVE, (self.last,))
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            pass

    def close(self) -> None:
        self._connection.close()

    def _patiently(self, work: Callable[[], T]) -> T:
        until = time.monotonic() + LOCKED_FOR
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or self._unwanted() or time.monotonic() > until:
                    raise

    def _begin(self) -> None:
        """The numbers of the first block are ours when it returns."""
        connection = self._connection
        migrate(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            (reserved,) = connection.execute("SELECT value FROM meta WHERE name = 'reserved'").fetchone()
            (last,) = connection.execute("SELECT ifnull(max(seq), 0) FROM events").fetchone()
            self.last = max(int(reserved), int(last))
            self.reserved = self.last + BLOCK
            connection.execute(_RESERVE, (self.reserved,))
            connection.execute("COMMIT")
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:  # the next BEGIN says what is the matter
            pass
