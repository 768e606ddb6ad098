"""The store keeps what it is given, in order, on disk; commits in groups; and reads it back while it writes."""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from quell.errors import StoreError
from quell.ports import Row, Store
from quell.stores import disk, writer
from quell.stores.sqlite import SqliteStore, read_rows
from tests.supervise.loops import LOOPS, run_on, until

from .logs import Told, opened, row, spy

Main = Callable[[], Coroutine[Any, Any, object]]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Main], object]:
    return lambda main: run_on(LOOPS[request.param], main)


def test_what_is_appended_is_read_back_in_order_before_and_after_a_new_start(
    tmp_path: Path, run: Callable[[Main], object]
) -> None:
    path = tmp_path / "log.db"
    rows = [row(n, f"s{n % 3}", "tool.ended", os.urandom(n)) for n in range(1, 300)]

    async def main() -> None:
        async with opened(path) as (store, told, last):
            assert last == 0
            for one in rows:
                store.append(one, one.seq % 2 == 0)
            assert await store.read() == rows
            await told.reaches(298)
        async with opened(path) as (store, _, last):
            assert last == 299
            assert await store.read() == rows

    run(main)
    assert list(read_rows(path)) == rows


def test_it_is_what_the_kernel_calls_a_store(tmp_path: Path) -> None:
    store: Store = SqliteStore(tmp_path / "log.db")
    assert store is not None


def test_reads_are_cut_out_by_number_session_and_kind(tmp_path: Path) -> None:
    kinds = ["tool.requested", "tool.ended", "tools.other", "too", "message.user", "tool"]

    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, _, _):
            rows = [row(n, f"s{n % 4}", kinds[n % 6]) for n in range(1, 61)]
            for one in rows:
                store.append(one, True)

            def expect(**cut: Any) -> list[Row]:
                found = [
                    one
                    for one in rows
                    if one.seq > cut.get("after", 0)
                    and one.seq <= cut.get("upto", 99)
                    and one.session == cut.get("session", one.session)
                    and (
                        not cut.get("kinds")
                        or any(
                            one.kind.startswith(kind) if kind.endswith(".") else one.kind == kind
                            for kind in cut["kinds"]
                        )
                    )
                ]
                return found[: cut.get("limit", 1000)]

            for cut in (
                {},
                {"after": 10},
                {"upto": 10},
                {"after": 10, "upto": 20, "limit": 3},
                {"session": "s1"},
                {"session": "s1", "after": 7, "upto": 50},
                {"session": "none"},
                {"kinds": ("tool.",)},
                {"kinds": ("tool",)},
                {"kinds": ("tool.", "message.user"), "session": "s2"},
                {"kinds": ("tools.", "too"), "limit": 2},
                {"limit": 0},
            ):
                assert await store.read(**cut) == expect(**cut), cut
            assert await store.read(limit=-1) == []

    run_on(LOOPS["asyncio"], main)


def test_a_session_is_read_by_its_index(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "log.db"):
            pass

    run_on(LOOPS["asyncio"], main)
    connection = sqlite3.connect(tmp_path / "log.db")
    text = (
        "EXPLAIN QUERY PLAN SELECT body FROM events WHERE seq > 5 AND seq <= 9 AND session = 's' ORDER BY seq LIMIT 9"
    )
    plan = " ".join(step[3] for step in connection.execute(text))
    connection.close()
    assert "events_by_session (session=? AND rowid>? AND rowid<?)" in plan
    assert "TEMP" not in plan


def test_sessions_are_listed_and_forgotten_for_good(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    async def main() -> None:
        async with opened(path) as (store, told, _):
            assert await store.sessions() == []
            for n in range(1, 31):
                store.append(row(n, ("", "b", "a")[n % 3]), True)
            assert await store.sessions() == ["a", "b"]
            assert await store.forget("a", keep=[2, 29, 999]) == 8
            assert [one.seq for one in await store.read(session="a")] == [2, 29]
            assert await store.forget("b") == 10
            assert await store.forget("b") == 0
            assert await store.sessions() == ["a"]
            assert told.safe == 30
        async with opened(path) as (store, _, last):
            assert last == 30
            assert len(await store.read()) == 12

    run_on(LOOPS["asyncio"], main)


def test_the_number_of_a_forgotten_event_is_not_given_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, _, _):
            for n in range(1, 11):
                store.append(row(n), True)
            await store.forget("s")
        async with opened(tmp_path / "log.db") as (_, _, last):
            assert last == 10

    run_on(LOOPS["asyncio"], main)


def test_two_hundred_producers_lose_no_row(tmp_path: Path, run: Callable[[Main], object]) -> None:
    """H50: one thread owns the connection; each of 200 that write at once finds all of its rows."""

    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, told, seq):

            async def producer(name: str) -> None:
                nonlocal seq
                for _ in range(5):
                    seq += 1
                    mine = seq
                    store.append(row(mine, name), True)
                    await told.reaches(mine)

            await asyncio.gather(*(producer(f"s{n}") for n in range(200)))
            found = await store.read(limit=2000)
            assert [one.seq for one in found] == list(range(1, 1001))
            assert {len([one for one in found if one.session == f"s{n}"]) for n in range(200)} == {5}

    run(main)


def test_what_waits_is_committed_together_and_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    spy(monkeypatch, said.append)

    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, told, _):
            said.clear()
            for n in range(1, 65):
                store.append(row(n), True)
            await told.reaches(64)
            assert said.count("COMMIT") == 1
            assert told.words == [64]

    run_on(LOOPS["asyncio"], main)


def test_parts_of_streams_force_no_commit_and_ride_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "IDLE", 60.0)
    said: list[str] = []
    spy(monkeypatch, said.append)

    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, told, _):
            said.clear()
            for n in range(1, 500):
                store.append(row(n), False)
                await asyncio.sleep(0)
            assert said == [] and told.words == []
            store.append(row(500), True)
            await told.reaches(500)
            assert said.count("COMMIT") == 1
            assert len(await store.read()) == 500

    run_on(LOOPS["asyncio"], main)


def test_parts_of_streams_alone_are_written_after_a_moment(tmp_path: Path, run: Callable[[Main], object]) -> None:
    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, told, _):
            began = time.monotonic()
            store.append(row(1), False)
            await told.reaches(1)
            assert writer.IDLE * 0.9 <= time.monotonic() - began < 5

    run(main)


def test_not_more_parts_of_streams_wait_in_memory_than_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "IDLE", 60.0)
    monkeypatch.setattr(writer, "MANY", 50)

    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, told, _):
            for n in range(1, 51):
                store.append(row(n), False)
            await told.reaches(50)

    run_on(LOOPS["asyncio"], main)


def test_a_number_is_reserved_on_disk_before_anybody_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has committed anything; a crash now must not give these numbers again."""
    monkeypatch.setattr(writer, "IDLE", 60.0)
    path = tmp_path / "log.db"

    def reserved() -> int:
        other = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        (value,) = other.execute("SELECT value FROM meta WHERE name = 'reserved'").fetchone()
        other.close()
        return int(value)

    async def main() -> None:
        async with opened(path) as (store, told, last):
            store.append(row(last + 1), False)
            assert reserved() >= last + disk.BLOCK // 2
            await store.read()
            for n in range(last + 2, last + 60):
                store.append(row(n), True)
                await told.reaches(n)
                assert reserved() >= n + disk.BLOCK // 2

    monkeypatch.setattr(disk, "BLOCK", 20)
    run_on(LOOPS["asyncio"], main)


def test_an_event_past_the_reserved_numbers_is_refused_until_the_disk_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "BLOCK", 20)
    monkeypatch.setattr(writer, "IDLE", 60.0)

    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, told, _):
            for n in range(1, 21):
                store.append(row(n), False)
            with pytest.raises(StoreError, match="takes no event 21: too many wait for the disk"):
                store.append(row(21), False)
            await store.read()
            store.append(row(21), True)
            await told.reaches(21)

    run_on(LOOPS["asyncio"], main)


def test_a_clean_end_leaves_one_file_and_no_gap(tmp_path: Path) -> None:
    async def main() -> None:
        for begin in (0, 3, 6):
            async with opened(tmp_path / "log.db") as (store, _, last):
                assert last == begin
                for n in range(3):
                    store.append(row(last + n + 1), False)
                await store.read(limit=1)

    run_on(LOOPS["asyncio"], main)
    assert os.listdir(tmp_path) == ["log.db"]
    assert (tmp_path / "log.db").stat().st_mode & 0o777 == 0o600


def test_closing_commits_what_waits_and_can_be_done_again(tmp_path: Path, run: Callable[[Main], object]) -> None:
    path = tmp_path / "log.db"

    async def main() -> None:
        store, told = SqliteStore(path), Told()
        await store.close()
        store = SqliteStore(path)
        await store.open(told)
        for n in range(1, 101):
            store.append(row(n), n == 50)
        await asyncio.gather(store.close(), store.close())
        await store.close()
        assert told.safe == 100
        for refused in (store.read(), store.sessions(), store.forget("s"), store.open(told)):
            with pytest.raises(StoreError):
                await refused
        with pytest.raises(StoreError, match="is closed"):
            store.append(row(101), True)

    run(main)
    assert len(list(read_rows(path))) == 100


def test_who_opens_a_log_that_is_closed_meanwhile_is_told(tmp_path: Path, run: Callable[[Main], object]) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "log.db")
        opening = asyncio.ensure_future(store.open(Told()))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreError, match="closed while it was opened"):
            await opening

    run(main)


def test_before_it_is_open_it_takes_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "log.db")
    with pytest.raises(StoreError, match="is not open"):
        store.append(row(1), True)


def test_closing_breaks_off_a_long_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(connection: sqlite3.Connection) -> list[str]:
        begun.set()
        text = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
        return [str(one) for one in connection.execute(text)]

    begun = threading.Event()
    monkeypatch.setattr("quell.stores.sqlite.select_sessions", endless)

    async def main() -> None:
        store = SqliteStore(tmp_path / "log.db")
        await store.open(Told())
        reading = asyncio.ensure_future(store.sessions())
        waiting = asyncio.ensure_future(store.read())
        assert await until(begun.is_set)
        await store.close()
        for broken in (reading, waiting):
            with pytest.raises(StoreError, match="is closed"):
                await broken

    run_on(LOOPS["asyncio"], main)


def test_a_loop_that_ends_without_closing_ends_the_thread(tmp_path: Path) -> None:
    """What was appended is written all the same, once the thread has something to say."""
    path = tmp_path / "log.db"

    async def main() -> SqliteStore:
        store = SqliteStore(path)
        await store.open(Told())
        store.append(row(1), False)
        return store

    store = run_on(LOOPS["asyncio"], main)
    assert store._writer is not None
    store._writer._thread.join(10)
    assert not store._writer._thread.is_alive()
    assert [one.seq for one in read_rows(path)] == [1]


def test_a_log_is_read_while_it_is_written_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    async def main() -> None:
        async with opened(path) as (store, told, _):
            for n in range(1, 2501):
                store.append(row(n), True)
            await told.reaches(2500)
            there = sorted(os.listdir(tmp_path))
            rows = read_rows(path)
            assert next(rows).seq == 1
            store.append(row(2501), True)
            await told.reaches(2501)
            assert [one.seq for one in rows] == list(range(2, 2502))
            assert sorted(os.listdir(tmp_path)) == there
            store.append(row(2502), True)  # the reader's end has not dropped the writer's locks
            await told.reaches(2502)

    run_on(LOOPS["asyncio"], main)
    before = path.read_bytes()
    assert len(list(read_rows(path))) == 2502
    assert os.listdir(tmp_path) == ["log.db"] and path.read_bytes() == before
