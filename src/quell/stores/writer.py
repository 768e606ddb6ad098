"""The one thread that writes the log: what it says is on disk is on disk, in the order of the calls (H50, H51).

Whatever waits is committed together. Parts of streams ride along; alone, they wait a moment for company.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import StoreError
from ..ports import Row
from ..supervise.errand import Fact
from .disk import Disk
from .owner import Ownership
from .reader import Look, Reader
from .schema import inspect, refusal

T = TypeVar("T")

IDLE = 0.2
"""Seconds that parts of streams wait for something durable to ride along with."""
MANY = 2000
"""Parts of streams that may wait in memory."""


class Chore:
    """Something to do between two commits, once all that was given before it is on disk."""

    def __init__(self, fact: Fact[Any], do: Callable[[Fact[Any]], None]) -> None:
        self.fact = fact
        self.do = do


class Writer:
    """Made and used in the loop's thread; what begins with an underscore runs in its own."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        told: Callable[[int], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        self.opened: Fact[int] = Fact(loop)
        self.closed: Fact[None] = Fact(loop)
        self.reserved = 0
        """Numbers up to this one are never given again, whatever happens. 0 while it is not open."""
        self._path = path
        self._loop = loop
        self._told = told
        self._failed = failed
        self._queue: deque[Row | Chore] = deque()
        self._gate = threading.Lock()  # released to wake the thread
        self._gate.acquire()
        self._urgent = False
        self._stirred = False
        self._ending = False
        self._broken: StoreError | None = None
        self._reader: Reader | None = None
        self._disk: Disk
        self._thread = threading.Thread(target=self._run, name="quell store", daemon=True)
        self._thread.start()

    # -- the loop's side

    def put(self, row: Row, durable: bool) -> None:
        self._queue.append(row)
        if self._urgent:
            return
        if durable or len(self._queue) >= MANY:
            self._hurry()
        elif not self._stirred:
            self._stirred = True
            self._wake()

    def _hurry(self) -> None:
        """Once the others whose turn it is have put theirs: awake at once, it would only wait for the interpreter."""
        self._urgent = True
        self._loop.call_soon(self._wake)

    def read(self, look: Look) -> Fact[Any]:
        """What a look at the log finds, all that was given before among it."""
        return self._ask(lambda fact: self._hand_over(look, fact))

    def change(self, work: Callable[[sqlite3.Connection], T]) -> Fact[T]:
        """What comes of this in a transaction of its own, on disk."""
        return self._ask(lambda fact: self._change(work, fact))

    def end(self) -> None:
        """Begin to end: `closed` tells when it is over."""
        self._ending = True
        self._wake()

    def join(self) -> None:
        """Once `closed` is known: only the last few instructions are left."""
        self._thread.join()

    def _ask(self, do: Callable[[Fact[Any]], None]) -> Fact[Any]:
        fact: Fact[Any] = Fact(self._loop)
        self._queue.append(Chore(fact, do))
        if not self._urgent:
            self._hurry()
        return fact

    def _wake(self) -> None:
        try:
            self._gate.release()
        except RuntimeError:  # it is awake, and will look again before it sleeps
            pass

    # -- the thread

    def _run(self) -> None:
        try:
            self._start()
        except Exception as error:  # noqa: BLE001  a boundary: told to whoever opens it, or uses it
            self._say(self._end_of, self._sentence(error))
        self._say(self.closed.tell, None)

    def _end_of(self, error: StoreError) -> None:
        self.reserved = 0
        if not self.opened.known:
            self.opened.fail(error)
            return
        self._failed(error)
        for item in self._queue:
            if isinstance(item, Chore):
                item.fact.fail(error)

    def _start(self) -> None:
        inspect(self._path)
        ownership = Ownership(self._path)
        try:
            self._disk = Disk(self._path, lambda: self._ending)
            try:
                self._say(self._open_for, self._disk.last, self._disk.reserved)
                self._serve()
            finally:
                if self._reader is not None:
                    self._reader.close()
                self._disk.close()
        finally:
            ownership.release()

    def _open_for(self, last: int, reserved: int) -> None:
        self.reserved = reserved
        self.opened.tell(last)

    def _serve(self) -> None:
        while not self._ending:
            self._gate.acquire()
            if not (self._urgent or self._ending):
                self._gate.acquire(timeout=IDLE)
            self._drain()
        self._drain()
        if self._broken is None:
            self._disk.finish()

    def _drain(self) -> None:
        self._urgent = self._stirred = False  # first: what comes from here on wakes it again
        queue = self._queue
        rows: list[Row] = []
        for _ in range(len(queue)):
            item = queue.popleft()
            if type(item) is Row:
                rows.append(item)
            else:
                assert isinstance(item, Chore)
                self._commit(rows)
                rows = []
                item.do(item.fact)
        self._commit(rows)

    def _commit(self, rows: list[Row]) -> None:
        if not rows or self._broken is not None:
            return
        try:
            self._disk.write(rows)
        except Exception as error:  # noqa: BLE001  a boundary: the thread must not die of what it was given
            self._give_up(error)
        else:
            self._say(self._on_disk, self._disk.last, self._disk.reserved)

    def _on_disk(self, last: int, reserved: int) -> None:
        self.reserved = reserved
        self._told(last)

    def _give_up(self, error: Exception) -> StoreError:
        if self._broken is None:
            self._broken = self._sentence(error)
            self._say(self._failed, self._broken)
        return self._broken

    def _sentence(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        if isinstance(error, sqlite3.Error):
            return refusal(self._path, error)
        return StoreError(f"the log {self._path} cannot be written: {type(error).__name__}: {error}")

    def _hand_over(self, look: Look, fact: Fact[Any]) -> None:
        if self._reader is None:
            try:
                self._reader = Reader(self._path)
            except RuntimeError as error:  # no thread to be had
                self._say(fact.fail, self._sentence(error))
                return
        self._reader.put(look, lambda found: self._say(fact.tell, found), lambda error: self._say(fact.fail, error))

    def _change(self, work: Callable[[sqlite3.Connection], object], fact: Fact[Any]) -> None:
        try:
            if self._broken is not None:
                raise self._broken
            found = self._disk.persist(work)
        except Exception as error:  # noqa: BLE001  a boundary: told to whoever asked
            self._say(fact.fail, self._give_up(error))
        else:
            self._say(fact.tell, found)

    def _say(self, call: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop is closed, and nobody is left to hear it: end as if asked to
            self._ending = True
