"""The log in one SQLite file: what was told to be on disk survives `kill -9` and power loss; no number is used twice.

Nothing here blocks the loop: one thread writes, one reads.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Sequence

from ..errors import StoreError
from ..ports import Row
from .reader import read_rows, select, select_sessions
from .writer import Writer

__all__ = ["SqliteStore", "read_rows"]


class SqliteStore:
    """`quell.ports.Store`. To be opened once and closed once; a further opening takes a new one.

    Numbers are reserved ahead, a block at a time. `append` raises StoreError once it is closed, and for a number past
    the reserved ones: then half a block waits for the disk, and whoever saw this number might see it again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._writer: Writer | None = None
        self._told: Callable[[int | Exception], None]
        self._closing = False
        self._broken = False

    async def open(self, told: Callable[[int | Exception], None]) -> int:
        if self._writer is not None or self._closing:
            raise StoreError(f"the log {self.path} was opened before: make another store")
        self._told = told
        try:
            writer = self._writer = Writer(self.path, asyncio.get_running_loop(), told, self._failed)
        except RuntimeError as error:
            raise StoreError(f"the log {self.path} cannot be opened: {error}") from None
        try:
            last = await writer.opened.wait()
            if self._closing:
                raise StoreError(f"the log {self.path} was closed while it was opened")
            return last
        except BaseException:
            await self.close()
            raise

    def append(self, row: Row, durable: bool) -> None:
        writer = self._writer
        if writer is None or row.seq > writer.reserved or self._closing:
            self._use()
            raise StoreError(f"the log {self.path} takes no event {row.seq}: too many wait for the disk already")
        if not self._broken:
            writer.put(row, durable)

    async def read(
        self,
        *,
        after: int = 0,
        upto: int | None = None,
        session: str | None = None,
        kinds: Sequence[str] = (),
        limit: int = 1000,
    ) -> list[Row]:
        wanted = tuple(kinds)
        found = self._use().read(lambda connection: select(connection, after, upto, session, wanted, limit))
        return await found.wait()  # type: ignore[no-any-return]  # what `select` gives

    async def sessions(self) -> list[str]:
        """Sorted; the events of no session (``) make none."""
        return await self._use().read(select_sessions).wait()  # type: ignore[no-any-return]  # what it gives

    async def forget(self, session: str, keep: Sequence[int] = ()) -> int:
        kept = json.dumps(list(keep))

        def remove(connection: sqlite3.Connection) -> int:
            text = "DELETE FROM events WHERE session = ? AND seq NOT IN (SELECT value FROM json_each(?))"
            return connection.execute(text, (session, kept)).rowcount

        return await self._use().change(remove).wait()

    async def close(self) -> None:
        self._closing = True
        writer = self._writer
        if writer is None:
            return
        writer.end()
        try:
            await writer.closed.insist()
        finally:
            writer.join()

    def _use(self) -> Writer:
        if self._closing or self._writer is None or not self._writer.reserved:
            raise StoreError(f"the log {self.path} is {'closed' if self._closing else 'not open'}")
        return self._writer

    def _failed(self, error: StoreError) -> None:
        self._broken = True
        self._told(error)
