"""A store in memory that behaves like a disk: slow, in groups, sometimes failing. What is on it survives a crash."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Sequence

from quell.errors import StoreError
from quell.ports import Row

BLOCK = 64
"""Numbers are reserved ahead, so many at a time: after a crash there is a gap."""


class Disk:
    """What survives. `written` is everything that was ever handed over, lost or not: for whoever judges afterwards."""

    def __init__(self, chance: random.Random, *, slowness: float = 0.0) -> None:
        self.chance = chance
        self.slowness = slowness
        self.rows: list[Row] = []
        self.reserved = 0
        self.written: list[Row] = []
        self.safe = 0  # the last number that is on it
        self.given = 0  # the last number that was handed over
        self.acknowledged = 0  # the last number that the kernel was told is on it
        self.forgotten: dict[str, int] = {}  # sessions whose rows were removed on purpose, and when
        self.offences: list[str] = []

    def lost(self) -> set[int]:
        """What was handed over, and is not on it."""
        return {row.seq for row in self.written} - {row.seq for row in self.rows}

    def delay(self) -> float:
        """Mostly short, as a disk is; sometimes not."""
        if self.chance.random() < 0.02 + self.slowness:
            return self.chance.uniform(0.0, 2.0)
        return self.chance.choice((0.0, 0.0001, 0.0003, 0.002, 0.02))


class SimStore:
    """`quell.ports.Store` on a disk. `crash` takes it away from the kernel at once, and so does `fail`, with a word."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.is_open = False
        self._pending: list[tuple[Row, bool]] = []
        self._told: Callable[[int | Exception], None] | None = None
        self._error: StoreError | None = None
        self._writing = False
        self._crashed = False
        self._closed = False
        self._readers: list[tuple[int, asyncio.Future[None]]] = []  # each with the number that it waits for
        self._nobody = contextvars.Context()  # a thread's, in truth: no scope's

    # -- the port

    async def open(self, told: Callable[[int | Exception], None]) -> int:
        await asyncio.sleep(self.disk.delay())
        self._check()
        if self.is_open:
            self.disk.offences.append("the store was opened twice")
        self.is_open = True
        self._told = told
        return self.disk.reserved

    def append(self, row: Row, durable: bool) -> None:
        disk = self.disk
        if self._crashed or self._error is not None:
            return
        if not self.is_open or self._closed:
            disk.offences.append(f"{row.kind} {row.seq} was appended to a store that is not open")
            return
        if row.seq <= disk.given:
            disk.offences.append(f"{row.kind} was given the number {row.seq} after {disk.given}")
        disk.given = row.seq
        disk.reserved = max(disk.reserved, -(-row.seq // BLOCK) * BLOCK)
        disk.written.append(row)
        self._pending.append((row, durable))
        if durable:
            self._begin()

    async def read(
        self,
        *,
        after: int = 0,
        upto: int | None = None,
        session: str | None = None,
        kinds: Sequence[str] = (),
        limit: int = 1000,
    ) -> list[Row]:
        await self._flushed()
        await asyncio.sleep(self.disk.delay())
        self._check(reading=True)
        found = [
            row
            for row in self.disk.rows
            if row.seq > after
            and (upto is None or row.seq <= upto)
            and (session is None or row.session == session)
            and (not kinds or any(row.kind.startswith(one) if one.endswith(".") else row.kind == one for one in kinds))
        ]
        return found[:limit]

    async def sessions(self) -> list[str]:
        await self._flushed()
        self._check(reading=True)
        return list(dict.fromkeys(row.session for row in self.disk.rows if row.session))

    async def forget(self, session: str, keep: Sequence[int] = ()) -> int:
        await self._flushed()
        await asyncio.sleep(self.disk.delay())
        self._check()
        disk = self.disk
        before = len(disk.rows)
        disk.rows = [row for row in disk.rows if row.session != session or row.seq in keep]
        disk.forgotten[session] = disk.given
        return before - len(disk.rows)

    async def close(self) -> None:
        if self.is_open and not self._closed:
            await self._flushed()
        self._closed = True

    # -- faults

    @property
    def failed(self) -> bool:
        return self._error is not None

    def crash(self) -> None:
        """The process is gone: what is not on disk is lost, and nobody is told of anything any more."""
        self._crashed = True
        self._pending.clear()
        self._release()
        if self._told is not None:  # for the ghost that must end: its disk is gone
            self._told(StoreError("the process is dead"))

    def fail(self, why: str = "the disk is full") -> None:
        """From now on nothing can be written, once and for all."""
        if self._error is None and not self._crashed and self.is_open and not self._closed:
            self._error = StoreError(why)
            self._pending.clear()
            self._release()
            assert self._told is not None
            self._told(self._error)

    # -- inside

    def _check(self, reading: bool = False) -> None:
        if self._crashed:
            raise StoreError("the process is dead")
        if self._error is not None and not reading:
            raise self._error.with_traceback(None)

    def _later(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *args, context=self._nobody)

    def _begin(self) -> None:
        if not self._writing:
            self._writing = True
            self._later(self.disk.delay(), self._write)

    def _write(self) -> None:
        if self._crashed or self._error is not None:
            return
        if self.disk.chance.random() < 0.01:  # busy: it is tried again
            self._later(self.disk.chance.uniform(0.1, 1.0), self._write)
            return
        group, self._pending = self._pending, []
        if group:
            self.disk.rows += [row for row, _ in group]
            self.disk.safe = group[-1][0].seq
            self._later(self.disk.delay() / 4, self._tell, self.disk.safe)  # a crash in between loses only the word
        else:
            self._tell(self.disk.safe)

    def _tell(self, seq: int) -> None:
        if self._crashed or self._error is not None:
            return
        self._writing = False
        self._release(seq)
        if self._readers or any(durable for _, durable in self._pending):
            self._begin()
        assert self._told is not None
        if seq:
            self.disk.acknowledged = seq
            self._told(seq)

    async def _flushed(self) -> None:
        """Until what was appended before is on disk."""
        if self._crashed or self._error is not None or not self._pending:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._readers.append((self._pending[-1][0].seq, waiter))
        self._begin()
        await waiter

    def _release(self, seq: int | None = None) -> None:
        """Let go on who waits for this number or one before it; or everybody."""
        ready = [one for one in self._readers if seq is None or one[0] <= seq]
        self._readers = [one for one in self._readers if one not in ready]
        for _, waiter in ready:
            if not waiter.done():
                waiter.set_result(None)
