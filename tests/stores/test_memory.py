"""The memory loses no note, finds the best by any words, keeps agents apart, and is gone with its plugin."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.errors import StoreError, UsageError
from quell.ports import Memory, Whose
from quell.stores import notes
from quell.stores.memory import FILE, LONGEST, SqliteMemory, plugin
from quell.testing import cancel_everywhere
from tests.supervise.loops import LOOPS, run_on

ME = Whose("me", "s1", "/here")
THERE = Whose("me", "s2", "/there")
OTHER = Whose("other", "s3", "/here")


def run(main: Callable[[], Coroutine[Any, Any, None]], loop: str = "asyncio") -> None:
    run_on(LOOPS[loop], main)


def rows(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT agent, text FROM notes ORDER BY id").fetchall()


async def all_at_once(*calls: Coroutine[Any, Any, object]) -> None:
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)


# -- keeping


@pytest.mark.parametrize("loop", LOOPS)
def test_200_that_are_stored_at_once_are_200_rows(tmp_path: Path, loop: str) -> None:
    """H50: one thread owns the connection, and every asker hears that its own is on disk."""

    async def main() -> None:
        async with SqliteMemory(tmp_path / FILE) as memory:
            await all_at_once(*(memory.store(ME, f"note {n}") for n in range(200)))
            with closing(sqlite3.connect(tmp_path / FILE)) as other:  # while it is open: it is on disk
                assert other.execute("SELECT count(*) FROM notes").fetchone() == (200,)
                assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert {text for _, text in rows(tmp_path / FILE)} == {f"note {n}" for n in range(200)}
        assert os.listdir(tmp_path) == [FILE]
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600

    run(main, loop)


WRITER = """
import asyncio, sys
from quell.ports import Whose
from quell.stores.memory import SqliteMemory
async def main():
    async with SqliteMemory(sys.argv[1]) as memory:
        async with asyncio.TaskGroup() as group:
            for n in range(50):
                group.create_task(memory.store(Whose("me", "s", "/"), f"{sys.argv[2]} {n}"))
        for n in range(5):
            await memory.store(Whose("me", "s", "/"), f"{sys.argv[2]} again {n}")
asyncio.run(main())
"""


def test_four_processes_share_one_file_from_its_first_moment(tmp_path: Path) -> None:
    """H50, H51: none waits for ever, and none loses a row."""
    path = tmp_path / "new" / FILE
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n)]) for n in range(4)]
    assert [writer.wait(30) for writer in writers] == [0, 0, 0, 0]
    expected = {f"{n} {k}" for n in range(4) for k in range(50)} | {
        f"{n} again {k}" for n in range(4) for k in range(5)
    }
    assert {text for _, text in rows(path)} == expected and len(rows(path)) == 220


def test_whoever_is_cancelled_loses_nothing_and_what_another_process_holds_blocks_nobody(tmp_path: Path) -> None:
    """H51, H02: the loop turns while it waits for the other; closing does not wait for long."""

    async def main() -> None:
        memory = SqliteMemory(tmp_path / FILE)
        await memory.store(ME, "first")
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await memory.store(ME, "cancelled")
            other.execute("COMMIT")
            await memory.store(ME, "after")
            assert [text for _, text in rows(tmp_path / FILE)] == ["first", "cancelled", "after"]
            other.execute("BEGIN IMMEDIATE")
            last: list[Exception] = []

            async def too_late() -> None:
                try:
                    await memory.store(ME, "too late")
                except StoreError as error:
                    last.append(error)

            began = time.monotonic()
            await all_at_once(too_late(), memory.close(), memory.close())
            assert time.monotonic() - began < 3
            other.execute("COMMIT")
        assert "is locked by another process" in str(last[0])
        with pytest.raises(StoreError, match="is closed"):
            await memory.recall(ME, "x", 1)

    run(main)


# -- finding


def test_the_best_match_comes_first_from_this_folder_and_from_no_other_agent(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteMemory(tmp_path / FILE) as memory:
            for whose, text in (
                (ME, "The server listens on port 8080."),
                (
                    ME,
                    "Port wine goes with cheese; the cheese is old, and so is the port, and it is served after dinner.",
                ),
                (THERE, "Deploy with make deploy"),
                (ME, "Deploy with make release"),
                (ME, "Café Zürich opens at nine"),
                (OTHER, "The server listens on port 9999."),
                (ME, "日本語のメモ"),
                (ME, "ship it 🚀"),
                (ME, "ship it 🚀"),
                (ME, "nul \0 inside"),
            ):
                await memory.store(whose, text)
            assert (await memory.recall(ME, "which PORT does the server use?", 2))[
                0
            ] == "The server listens on port 8080."
            assert await memory.recall(ME, "deploy", 5) == ["Deploy with make release", "Deploy with make deploy"]
            assert await memory.recall(THERE, "deploy", 5) == ["Deploy with make deploy", "Deploy with make release"]
            assert await memory.recall(ME, "cafe zurich", 1) == ["Café Zürich opens at nine"]
            assert await memory.recall(ME, "serv", 1) == ["The server listens on port 8080."]
            assert await memory.recall(ME, "本語", 3) == ["日本語のメモ"]
            assert await memory.recall(ME, "🚀", 3) == ["ship it 🚀"]
            assert await memory.recall(ME, "9999", 3) == await memory.recall(ME, "nothing", 3) == []
            assert await memory.recall(ME, "", 2) == ["nul \0 inside", "ship it 🚀"]
            assert len(await memory.recall(ME, "port", -3)) == 1

    run(main)


def test_no_question_is_an_error(tmp_path: Path) -> None:
    hostile = [
        *('"', '""', "'", "a AND", "NEAR(", "text:x", "-x", "^a", "*", "a*", "(a", "a OR OR b", "{a b}: c", "+"),
        *("\0", "a\0b", "🚀", "\ud800", "_", "__", "%", "notes; DROP TABLE notes", "\n", "é" * 5000, "x" * 1_000_000),
        *(" ".join(str(n) for n in range(100_000)), '"' * 1000, "NOT", "AND", "٣ ²", "\u0301", "\u200d"),
    ]

    async def main() -> None:
        async with SqliteMemory(tmp_path / FILE) as memory:
            await memory.store(ME, "a note, AND NOT near any other")
            for query in hostile:
                for found in await memory.recall(ME, query, 3):
                    assert found == "a note, AND NOT near any other"
            await memory.store(ME, "half \ud800 a character")
            assert await memory.recall(ME, "character", 1) == ["half ? a character"]
            with pytest.raises(UsageError, match="is too long to be remembered"):
                await memory.store(ME, "x" * (LONGEST + 1))

    run(main)


# -- files that are none


def diary(path: Path) -> None:
    path.write_text("my diary, and not a database, for certain\n" * 100)


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {notes.APPLICATION}")
        connection.execute("PRAGMA user_version = 99")


def torn(path: Path) -> None:
    async def main() -> None:
        async with SqliteMemory(path) as memory:
            for n in range(30):
                await memory.store(ME, f"{n} " * 2000)

    run(main)
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (diary, "is not a database, and is left as it is"),
        (foreign, "is a database of another program, and is left as it is"),
        (newer, "was written by a newer quell, and is left as it is"),
        (torn, "is damaged, and is left as it is"),
        (Path.mkdir, "it is no regular file"),
    ],
)
def test_what_is_no_memory_is_refused_and_stays_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None], sentence: str
) -> None:
    path = tmp_path / FILE
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""

    async def main() -> None:
        async with SqliteMemory(path) as memory:
            for call in (memory.store(ME, "x"), memory.recall(ME, "x", 1)):
                with pytest.raises(StoreError, match=sentence) as refusal:
                    await call
                assert str(refusal.value).startswith(f"the memory {path} ") and "\n" not in str(refusal.value)

    run(main)
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert os.listdir(tmp_path) == [FILE]


def test_what_cannot_be_written_is_refused_and_used_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with SqliteMemory(tmp_path / FILE) as memory:
            with monkeypatch.context() as patch:
                patch.setattr(os, "access", lambda *args, **named: False)
                with pytest.raises(StoreError, match=f"cannot be written: no permission for {tmp_path}"):
                    await memory.store(ME, "x")
            await memory.store(ME, "now")
            assert await memory.recall(ME, "now", 1) == ["now"]
        blocked = SqliteMemory(tmp_path / FILE / "below")
        with pytest.raises(StoreError, match="cannot be opened"):
            await blocked.store(ME, "x")
        await blocked.close()
        async with SqliteMemory("") as nowhere:
            with pytest.raises(UsageError, match="there is no memory here"):
                await nowhere.recall(ME, "x", 1)

    run(main)


# -- its life


class Context:
    """As much of a plugin's context as it uses."""

    def __init__(self, scope: quell.Scope, home: Path) -> None:
        self.scope = scope
        self.home = str(home)
        self.brought: dict[str, Memory] = {}

    def memory(self, name: str, memory: Memory) -> None:
        self.brought[name] = memory


def test_it_is_opened_when_it_is_used_and_closed_with_the_scope_of_its_plugin(tmp_path: Path) -> None:
    """H03: no thread and no file is left of it."""

    async def main() -> None:
        async with quell.Supervisor() as sup:
            context = Context(sup.scope("plugin-memory"), tmp_path)
            setup: Callable[[Context], Awaitable[None]] = plugin.setup  # type: ignore[assignment]  # as above
            await setup(context)
            memory = context.brought["sqlite"]
            assert os.listdir(tmp_path) == []
            await memory.store(ME, "kept")
            assert (await context.scope.stop()).confirmed
            with pytest.raises(StoreError, match="is closed"):
                await memory.store(ME, "late")
        assert rows(tmp_path / FILE) == [("me", "kept")] and os.listdir(tmp_path) == [FILE]

    run(main)


Scenario = Callable[[], AbstractAsyncContextManager[Callable[[], Awaitable[object]]]]


def of_memory(call: Callable[[SqliteMemory], Awaitable[object]]) -> Scenario:
    """On one that is open, of which the thread runs."""

    @asynccontextmanager
    async def scenario() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            async with SqliteMemory(Path(folder) / FILE) as memory:
                await memory.store(ME, "before")
                yield lambda: call(memory)

    return scenario


async def whole() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteMemory(os.path.join(folder, FILE)) as memory:
            await memory.store(ME, "one")
            assert await memory.recall(ME, "one", 1) == ["one"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        ("from the first store to the close", whole),
        ("store", of_memory(lambda memory: memory.store(ME, "x"))),
        ("recall", of_memory(lambda memory: memory.recall(ME, "before", 1))),
        ("close", of_memory(lambda memory: memory.close())),
    ],
)
def test_nothing_of_the_memory_is_left_wherever_it_is_cancelled(name: str, scenario: Any, loop: str) -> None:
    """H02, H03: once, and again during clean-up."""
    coverage = cancel_everywhere(
        scenario,
        name=f"memory {name}-{loop}",
        loop_factory=LOOPS[loop],
        budget=0.3,
        least=4,
        ignore=lambda leak: leak.kind == "cgroup",
    )
    assert coverage.findings == [] and coverage.points_covered >= 4 and coverage.pairs_covered
