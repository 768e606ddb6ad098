"""A disk that fails: tried again for a while, in order, then given up aloud. What is not there is never claimed."""

import resource
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from quell.errors import StoreError
from quell.stores import disk, writer
from quell.stores.sqlite import SqliteStore, read_rows
from tests.supervise.loops import LOOPS, run_on, until

from .logs import Told, opened, row, spy


class Failing:
    """Fails the statements that begin so, while `bad`."""

    def __init__(self, *beginnings: str, error: type[Exception] = sqlite3.OperationalError) -> None:
        self.beginnings = beginnings
        self.error = error
        self.bad = False
        self.failed = 0

    def __call__(self, text: str) -> None:
        if self.bad and text.startswith(self.beginnings):
            self.failed += 1
            error = self.error("database or disk is full")
            if isinstance(error, sqlite3.Error):
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "RETRY_FIRST", 0.005)
    monkeypatch.setattr(disk, "RETRY_FOR", 0.2)


@pytest.mark.parametrize("beginning", ["BEGIN", "COMMIT"])
def test_a_failure_that_passes_is_not_noticed_and_changes_no_order(
    beginning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "RETRY_FOR", 20.0)
    failing = Failing(beginning)
    spy(monkeypatch, failing)

    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, told, _):
            failing.bad = True
            for n in range(1, 11):
                store.append(row(n), True)
            assert await until(lambda: failing.failed >= 3)
            for n in range(11, 21):
                store.append(row(n), n % 2 == 0)
            assert told.words == []
            failing.bad = False
            await told.reaches(20)
            assert told.failures == []
            assert [one.seq for one in await store.read()] == list(range(1, 21))

    run_on(LOOPS["asyncio"], main)


@pytest.mark.parametrize("beginning", ["BEGIN", "COMMIT"])
def test_a_failure_that_stays_is_told_once_and_reading_still_works(
    beginning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(beginning)
    spy(monkeypatch, failing)
    path = tmp_path / "log.db"

    async def main() -> None:
        async with opened(path) as (store, told, _):
            store.append(row(1), True)
            await told.reaches(1)
            failing.bad = True
            store.append(row(2), True)
            assert await until(lambda: bool(told.failures))
            failing.bad = False
            store.append(row(3), True)
            assert [one.seq for one in await store.read()] == [1]
            assert await store.sessions() == ["s"]
            with pytest.raises(StoreError, match="the disk is full; make room"):
                await store.forget("s")
            store.append(row(4), False)
        assert told.words == [1, told.failures[0]]
        assert isinstance(told.failures[0], StoreError)
        assert "cannot be written: the disk is full; make room" in str(told.failures[0])
        async with opened(path) as (_, _, last):
            assert last >= 4

    run_on(LOOPS["asyncio"], main)


def test_what_no_time_can_mend_is_given_up_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "RETRY_FOR", 60.0)

    async def main() -> None:
        for wrong in (row(1), row(2, kind="\ud800"), row(2, body="text")):  # type: ignore[arg-type]  # on purpose
            async with opened(tmp_path / f"{wrong.seq}{type(wrong.body)}{len(wrong.kind)}.db") as (store, told, _):
                store.append(row(1), True)
                await told.reaches(1)
                store.append(wrong, True)
                assert await until(lambda told=told: bool(told.failures), 5)  # type: ignore[misc]  # a default
                assert [one.seq for one in await store.read()] == [1]

    run_on(LOOPS["asyncio"], main)


def test_a_close_while_the_disk_fails_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing("COMMIT")
    spy(monkeypatch, failing)

    async def main() -> Told:
        async with opened(tmp_path / "log.db") as (store, told, _):
            failing.bad = True
            store.append(row(1), True)
        return told

    told = run_on(LOOPS["asyncio"], main)
    assert told.safe == 0 and len(told.failures) == 1
    assert list(read_rows(tmp_path / "log.db")) == []


def test_a_fault_in_the_thread_itself_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("a fault of our own")

    async def main() -> None:
        async with opened(tmp_path / "log.db") as (store, told, _):
            monkeypatch.setattr(writer.Writer, "_drain", broken)
            store.append(row(1), True)
            with pytest.raises(StoreError, match="ZeroDivisionError: a fault of our own"):
                await store.read()
            assert len(told.failures) == 1
            with pytest.raises(StoreError, match="is not open"):
                await store.read()

    run_on(LOOPS["asyncio"], main)


def test_without_a_thread_to_be_had_opening_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none)
            store = SqliteStore(tmp_path / "log.db")
            with pytest.raises(StoreError, match="can't start new thread"):
                await store.open(Told())
            await store.close()
        async with opened(tmp_path / "log.db") as (store, _, _):
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", none)
                with pytest.raises(StoreError, match="can't start new thread"):
                    await store.read()
            assert await store.read() == []

    run_on(LOOPS["asyncio"], main)


FULL = """
import asyncio, sys
from quell.ports import Row
from quell.stores import disk, writer
from quell.stores.sqlite import SqliteStore
disk.RETRY_FOR = 0.3
async def main():
    failed = asyncio.Event()
    def told(word):
        print(word, flush=True)
        isinstance(word, int) or failed.set()
    store = SqliteStore(sys.argv[1])
    seq = await store.open(told)
    while not failed.is_set():
        seq += 1
        store.append(Row(seq, 0.0, "message.user", "s", b"x" * 5000), True)
        await asyncio.sleep(0.0005)
    await store.close()
asyncio.run(main())
"""


def test_on_a_disk_that_is_really_full_all_that_was_told_is_there(tmp_path: Path) -> None:
    """Files of this process may not grow beyond a few hundred KB: SQLite itself meets the error."""
    path = tmp_path / "log.db"
    limit = 400_000

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-c", FULL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, preexec_fn=small)
    *told, failure = done.stdout.splitlines()
    assert "the log" in failure and "cannot be" in failure, done
    assert len(told) > 5
    assert {one.seq for one in read_rows(path)} >= set(range(1, int(told[-1]) + 1))
