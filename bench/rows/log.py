"""Durable appends to the log: 64 producers beside SQLite's own batches of 64, and one alone. Every commit is synced."""

import asyncio
import itertools
import os
import sqlite3
import statistics
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import aiosqlite

from bench.line import Ceiling, Line, compared, lines, ms, times
from bench.rows.scope import LOOPS
from bench.safety import safely
from bench.sampling import Contender, Samples, Spread, take_turns
from quell.ports import Row
from quell.stores import schema
from quell.stores.sqlite import SqliteStore

PRODUCERS = 64
TOTAL = 6400
"""Rows in one turn of each contender, in a log of their own."""
ALONE = 100
"""Appends in one turn, one after another: their median counts."""
BODY = os.urandom(660)
"""As large as the event of the row `event encode + decode`."""
RATE = Ceiling(0.75, floor=True)
ALONE_LIMIT = 0.4e-3
INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"

Values = tuple[int, float, str, str, bytes]


def measure(quick: bool) -> list[Line]:
    rounds = 5 if quick else 25
    return lines([*safely(many, rounds), *safely(alone, rounds)])


def values(seq: int) -> Values:
    return seq, 1.5, "tool.ended", f"session-{seq % PRODUCERS}", BODY


def batches() -> list[list[Values]]:
    return [[values(first + n) for n in range(1, PRODUCERS + 1)] for first in range(0, TOTAL, PRODUCERS)]


def in_new_log(work: Callable[[str], float]) -> Contender:
    """Each turn has a log of its own, with our tables, in the same file system."""

    def once() -> float:
        with tempfile.TemporaryDirectory(prefix="quell-bench-log-") as folder:
            path = str(Path(folder) / "log.db")
            with closing(schema.connect(path)) as connection:
                schema.migrate(connection)
            return work(path)

    return once


# -- what there is to compare with


def plain(path: str) -> float:
    """Seconds per row of plain sqlite3 in one thread, batch after batch: nobody waits for anybody."""
    ready = batches()
    with closing(schema.connect(path)) as connection:
        began = time.perf_counter()
        for batch in ready:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT, batch)
            connection.execute("COMMIT")
        return (time.perf_counter() - began) / TOTAL


def plain_alone(path: str) -> float:
    with closing(schema.connect(path)) as connection:
        return statistics.median([_timed(connection, seq) for seq in range(1, ALONE + 1)])


def _timed(connection: sqlite3.Connection, seq: int) -> float:
    began = time.perf_counter()
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(INSERT, values(seq))
    connection.execute("COMMIT")
    return time.perf_counter() - began


@asynccontextmanager
async def by_aiosqlite(path: str) -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(path) as connection:
        await connection.execute("PRAGMA synchronous = FULL")
        yield connection


async def aio(path: str) -> float:
    """Batches by one coroutine: the best that it has, since producers on one connection share a transaction."""
    ready = batches()
    async with by_aiosqlite(path) as connection:
        began = time.perf_counter()
        for batch in ready:
            await connection.executemany(INSERT, batch)
            await connection.commit()
        return (time.perf_counter() - began) / TOTAL


async def aio_alone(path: str) -> float:
    taken = []
    async with by_aiosqlite(path) as connection:
        for seq in range(1, ALONE + 1):
            began = time.perf_counter()
            await connection.execute(INSERT, values(seq))
            await connection.commit()
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


# -- ours


class Producing:
    """An open log, and those who wait for their rows to be on disk."""

    def __init__(self, path: str) -> None:
        self._store = SqliteStore(path)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> "Producing":
        assert await self._store.open(self._told) == 0
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()

    def _told(self, safe: int | Exception) -> None:
        assert isinstance(safe, int), safe
        waiting = self._waiting
        while waiting and waiting[0][0] <= safe:
            waiting.popleft()[1].set_result(None)

    async def append(self, session: str) -> None:
        seq = next(self._numbers)
        on_disk = self._loop.create_future()
        self._waiting.append((seq, on_disk))
        self._store.append(Row(seq, 1.5, "tool.ended", session, BODY), True)
        await on_disk

    async def repeat(self, session: str, count: int) -> None:
        for _ in range(count):
            await self.append(session)


async def ours(path: str) -> float:
    async with Producing(path) as log:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n in range(PRODUCERS):
                group.create_task(log.repeat(f"session-{n}", TOTAL // PRODUCERS))
        return (time.perf_counter() - began) / TOTAL


async def ours_alone(path: str) -> float:
    taken = []
    async with Producing(path) as log:
        for _ in range(ALONE):
            began = time.perf_counter()
            await log.append("session-0")
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


# -- lines


def many(rounds: int) -> list[Line]:
    with asyncio.Runner() as runner, asyncio.Runner(loop_factory=LOOPS["uvloop"]) as fast:
        contenders = {
            "batches of 64": in_new_log(plain),
            "asyncio": in_new_log(lambda path: runner.run(ours(path))),
            "uvloop": in_new_log(lambda path: fast.run(ours(path))),
            "aiosqlite": in_new_log(lambda path: runner.run(aio(path))),
        }
        samples = take_turns("durable appends of 64 producers", contenders, rounds)
    peers = {"batches of 64": ("SQLite, batches of 64 in one thread", RATE), "aiosqlite": ("aiosqlite, batches", None)}
    return [
        rates(f"durable append, 64 producers on {loop}, synced", samples, loop, peer, *said)
        for loop in LOOPS
        for peer, said in peers.items()
    ]


def rates(work: str, samples: Samples, ours: str, peer: str, named: str, target: Ceiling | None) -> Line:
    """How many times as many rows a second."""
    ratio = samples.ratio(peer, ours)
    met = target.holds(ratio.p50) if target else None
    figures = per_second(samples.of(peer)), per_second(samples.of(ours))
    return Line(work, named, *figures, times(ratio), str(target or "–"), met)


def per_second(figure: Spread) -> str:
    return f"{1 / figure.p50 / 1000:.1f} k/s"


def alone(rounds: int) -> list[Line]:
    with asyncio.Runner() as runner, asyncio.Runner(loop_factory=LOOPS["uvloop"]) as fast:
        contenders = {
            "plain sqlite3": in_new_log(plain_alone),
            "asyncio": in_new_log(lambda path: runner.run(ours_alone(path))),
            "uvloop": in_new_log(lambda path: fast.run(ours_alone(path))),
            "aiosqlite": in_new_log(lambda path: runner.run(aio_alone(path))),
        }
        samples = take_turns("one durable append", contenders, rounds)
    found = []
    for loop in LOOPS:
        for peer in ("plain sqlite3", "aiosqlite"):
            line = compared(f"one durable append on {loop}, synced, p50", samples, loop, peer)
            met = samples.of(loop).p50 <= ALONE_LIMIT
            found.append(line._replace(target=f"≤ {ms(Spread(*[ALONE_LIMIT] * 3))}", met=met))
    return found
