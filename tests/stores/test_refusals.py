"""What cannot be a log is refused in one sentence and stays byte for byte as it was; old logs are updated."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quell.errors import StoreError
from quell.stores import disk, schema
from quell.stores.sqlite import SqliteStore, read_rows
from tests.supervise.loops import LOOPS, run_on

from .logs import Told, opened, row


def make(path: Path, rows: int = 0) -> None:
    async def main() -> None:
        async with opened(path) as (store, told, last):
            for n in range(1, rows + 1):
                store.append(row(last + n, body=b"x" * 500), True)
            if rows:
                await told.reaches(last + rows)

    run_on(LOOPS["asyncio"], main)


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def no_database(path: Path) -> None:
    path.write_text("my diary, and not a database, for certain\n" * 100, encoding="utf-8")


def torn(path: Path) -> None:
    make(path, 200)
    os.truncate(path, path.stat().st_size // 2)


def bad_page(path: Path) -> None:
    make(path, 200)
    with path.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xff" * 4096)


def bad_header(path: Path) -> None:
    make(path, 10)
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\xff" * 60)


def newer(path: Path) -> None:
    make(path, 3)
    edit(path, "PRAGMA user_version = 99")


def newer_and_left_by_a_crash(path: Path) -> None:
    make(path, 3)
    text = (
        f"import os, sqlite3\nc = sqlite3.connect({str(path)!r}, isolation_level=None)\n"
        "c.execute('PRAGMA user_version = 99')\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
    assert Path(f"{path}-wal").stat().st_size > 0


def foreign(path: Path) -> None:
    edit(path, "CREATE TABLE bookmarks (url)", "PRAGMA application_id = 77")


def foreign_without_name(path: Path) -> None:
    edit(path, "CREATE TABLE bookmarks (url)")


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "not a database": (no_database, "is not a database, and is left as it is; move it away"),
    "torn": (torn, "is damaged, and is left as it is"),
    "a bad page": (bad_page, "is damaged, and is left as it is"),
    "a bad header": (bad_header, "is not a database|is damaged"),
    "newer": (newer, r"was written by a newer quell \(version 99 of the log, this one knows 1\); update quell"),
    "newer, crashed": (newer_and_left_by_a_crash, "was written by a newer quell"),
    "foreign": (foreign, "is a database of another program; choose another place"),
    "foreign without a name": (foreign_without_name, "is a database of another program"),
    "a folder": (folder, "it is a directory; name a file"),
    "a pipe": (pipe, "it is no regular file; name a file"),
}


def contents(place: Path) -> dict[str, bytes | None]:
    """But for the -shm, which is SQLite's memory and not part of the data."""
    return {one.name: one.read_bytes() if one.is_file() else None for one in place.iterdir() if not one.match("*-shm")}


def refused(path: Path) -> str:
    async def main() -> str:
        store = SqliteStore(path)
        with pytest.raises(StoreError) as caught:
            await store.open(Told())
        await store.close()
        return str(caught.value)

    return run_on(LOOPS["asyncio"], main)


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_log_of_ours_is_refused_and_left_untouched(what: str, tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    plant, sentence = REFUSED[what]
    plant(path)
    before, names = contents(tmp_path), sorted(os.listdir(tmp_path))
    assert re.search(sentence, refused(path))
    if path.is_file():
        with pytest.raises(StoreError):
            list(read_rows(path))
    assert contents(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == names


def test_a_large_damaged_log_is_found_at_the_first_read_of_the_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "CHECK_UPTO", 0)
    path = tmp_path / "log.db"
    bad_page(path)

    async def main() -> None:
        async with opened(path) as (store, _, last):
            with pytest.raises(StoreError, match="is damaged"):
                await store.read()
            assert [one.seq for one in await store.read(after=last - 1)] == [last]

    run_on(LOOPS["asyncio"], main)


def test_a_place_that_is_not_there_or_may_not_be_written_is_refused(tmp_path: Path) -> None:
    assert "there is no folder" in refused(tmp_path / "missing" / "log.db")
    assert "cannot be read: Not a directory" in refused(Path(__file__) / "log.db")


UNSHARED = """
import asyncio, os, sys
from quell.errors import StoreError
from quell.stores.sqlite import SqliteStore
if sys.argv[2] == "nobody":
    os.setgid(4242), os.setuid(4242)
async def main():
    try:
        await SqliteStore(sys.argv[1]).open(print)
    except StoreError as error:
        print(error)
asyncio.run(main())
"""


@pytest.mark.parametrize("there", [True, False], ids=["there", "new"])
@pytest.mark.parametrize(
    ("who", "sentence"), [("nobody", "no permission for"), ("root", "the file system is read-only; choose another")]
)
def test_without_permission_or_on_a_readonly_disk_it_is_refused(
    who: str, sentence: str, there: bool, tmp_path: Path
) -> None:
    """In a mount namespace of its own, where the folder is an image in memory."""
    mode, again = ("ro", "remount,ro") if who == "root" else ("rw", "remount,rw")
    copy = ""
    if there:
        make(tmp_path / "made.db", 3)
        copy = f"cp {tmp_path}/made.db /mnt/log.db;"
    script = f'mount -t tmpfs -o mode=0755 none /mnt && {copy} mount -o {again} /mnt && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, mode, sys.executable, "-c", UNSHARED, "/mnt/log.db", who]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert sentence in done.stdout, done
    assert done.stdout.count("\n") == 1


HOLDER = """
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""

OWNER = """
import asyncio, sys
from quell.stores.sqlite import SqliteStore
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open(print)
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await store.close()
asyncio.run(main())
"""


@pytest.mark.parametrize(("program", "sentence"), [(HOLDER, "locked by another process"), (OWNER, "locked by process")])
def test_a_log_that_another_process_has_is_refused_and_taken_when_that_one_is_killed(
    program: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H51: a busy timeout, and one owner whose lock dies with it."""
    monkeypatch.setattr(disk, "LOCKED_FOR", 0.3)
    path = tmp_path / "log.db"
    make(path, 3)
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert sentence in refused(path)
        assert len(list(read_rows(path))) == 3
        other.kill()
    make(path, 1)
    assert len(list(read_rows(path))) == 4


def test_a_log_has_one_writer_within_a_process_too(tmp_path: Path) -> None:
    """H51: record locks alone would let the second one in, and its end would let go of the first one's lock."""
    path = tmp_path / "log.db"

    async def main() -> None:
        async with opened(path):
            for _ in range(2):
                with pytest.raises(StoreError, match="locked by this process, which writes it"):
                    await SqliteStore(path).open(Told())
        async with opened(path):
            pass

    run_on(LOOPS["asyncio"], main)


def test_who_is_cancelled_while_it_waits_for_a_lock_waits_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    make(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def main() -> None:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await SqliteStore(path).open(Told())
        assert time.monotonic() - began < disk.LOCKED_FOR / 2

    run_on(LOOPS["asyncio"], main)
    other.close()


NEXT = ("ALTER TABLE events ADD COLUMN note TEXT", "INSERT INTO meta VALUES ('migrated', 1)")


def test_an_older_log_is_brought_up_to_date_and_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.db"
    make(path, 5)
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, NEXT, ["INSERT INTO meta VALUES ('again', 1)"]))
    make(path, 2)
    assert [one.seq for one in read_rows(path)] == list(range(1, 8))
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (3,)
    assert connection.execute("SELECT count(*) FROM meta").fetchone() == (3,)
    connection.close()


def test_a_step_that_fails_is_undone_and_what_came_before_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    make(path, 5)
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, ("DELETE FROM events", "INSERT INTO nowhere VALUES (1)")))
    assert "nowhere" in refused(path)
    monkeypatch.undo()
    make(path)
    assert [one.seq for one in read_rows(path)] == [1, 2, 3, 4, 5]


def test_an_empty_file_becomes_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.touch()
    assert list(read_rows(path)) == []
    make(path, 2)
    assert len(list(read_rows(path))) == 2


def test_a_name_with_signs_that_mean_something_in_addresses_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=memory&x#%41.db"
    make(path, 2)
    assert os.listdir(tmp_path) == [path.name]
    assert len(list(read_rows(path))) == 2


def test_reading_a_log_that_is_not_there_makes_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no log"):
        next(read_rows(tmp_path / "log.db"))
    assert os.listdir(tmp_path) == []
