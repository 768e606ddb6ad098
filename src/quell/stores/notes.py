"""What agents remember, as a SQLite file with an index of its words: kept on disk, and found by any words whatever.

Several processes may share the file. One that is damaged, newer or somebody else's is refused and stays as it is.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..errors import StoreError
from ..ports import Whose
from .schema import BUSY_STEP, CHECK_UPTO, damaged, pragma, refusal, uri, writable

T = TypeVar("T")
Note = tuple[float, str, str, str, str]
"""When, and agent, session, cwd, text."""

APPLICATION = 0x51754D65
"""`QuMe`, in the header of the file: says whose it is."""
LOCKED_FOR = 10.0
"""Seconds that a call waits for other processes."""
TERMS = 32
"""Words of a question that count."""
LOOKED_AT = 10_000
"""Characters of a question in which they are looked for."""
HERE = 1.5
"""How much more a note weighs that was made in the same folder."""

STEPS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE notes (
            id INTEGER PRIMARY KEY, at REAL NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL, cwd TEXT NOT NULL,
            text TEXT NOT NULL
        ) STRICT""",
        "CREATE INDEX notes_by_agent ON notes (agent)",  # and by age within, as that is the order of the ids
        """CREATE VIRTUAL TABLE words USING fts5 (
            text, content = 'notes', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
        )""",
        """CREATE TRIGGER notes_added AFTER INSERT ON notes BEGIN
            INSERT INTO words (rowid, text) VALUES (new.id, new.text);
        END""",
        f"PRAGMA application_id = {APPLICATION}",
    ),
)
"""The step at n leads from version n to n+1, in one transaction. Old ones are never edited."""

_INSERT = "INSERT INTO notes (at, agent, session, cwd, text) VALUES (?, ?, ?, ?, ?)"
_LATEST = "SELECT text FROM notes WHERE agent = ? ORDER BY cwd = ? DESC, id DESC LIMIT ?"
_BEST = f"""
SELECT notes.text FROM words JOIN notes ON notes.id = words.rowid WHERE words MATCH ? AND notes.agent = ?
ORDER BY bm25(words) * CASE WHEN notes.cwd = ? THEN {HERE} ELSE 1 END, notes.id DESC LIMIT ?
"""
_HOLDING = "SELECT text FROM notes WHERE agent = ? AND instr(text, ?) ORDER BY cwd = ? DESC, id DESC LIMIT ?"
_MANY = 4  # times as many are asked for as are wanted, as the same may have been kept twice


class Notes:
    """Made, used and closed in one thread. `unwanted` says that whoever waits should not wait for other processes."""

    def __init__(self, path: str, unwanted: Callable[[], bool]) -> None:
        self._path = path
        self._unwanted = unwanted
        _inspect(path)
        self._connection = self._open()

    def keep(self, notes: Iterable[Note]) -> None:
        """All of them are on disk when it returns, or none."""
        rows = [tuple(_storable(one) if isinstance(one, str) else one for one in note) for note in notes]
        self._patiently(lambda: self._in_transaction(lambda: self._connection.executemany(_INSERT, rows)))

    def find(self, whose: Whose, query: str, limit: int) -> list[str]:
        """The best first: what has the words, then what has words that begin so, then what has them inside others."""
        return self._patiently(lambda: self._find(whose, _storable(query[:LOOKED_AT]), limit))

    def close(self) -> None:
        self._connection.close()

    def _find(self, whose: Whose, query: str, limit: int) -> list[str]:
        agent, cwd, many = _storable(whose.agent), _storable(whose.cwd), limit * _MANY
        if not query.strip():
            return self._texts(_LATEST, (agent, cwd, many))[:limit]
        terms = list(dict.fromkeys(re.findall(r"\w+", query.lower())))[:TERMS]
        found: list[str] = []
        for match in (" OR ".join(f'"{one}"' for one in terms), " OR ".join(f'"{one}"*' for one in terms)):
            if terms and len(found) < limit:
                found += self._texts(_BEST, (match, agent, cwd, many))
        for inside in terms or [query.strip()]:
            if len(found) < limit:
                found += self._texts(_HOLDING, (agent, inside, cwd, many))
        return list(dict.fromkeys(found))[:limit]

    def _texts(self, statement: str, values: tuple[object, ...]) -> list[str]:
        return list(dict.fromkeys(text for (text,) in self._connection.execute(statement, values)))

    # -- opening

    def _open(self) -> sqlite3.Connection:
        """StoreError says why not."""
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except FileExistsError:  # and is not opened here: a close of ours would drop the locks that SQLite holds on it
            pass
        except OSError as error:
            raise StoreError(f"the memory {self._path} cannot be made: {error.strerror}") from None
        where = f"{uri(self._path)}?mode=rw"
        connection = self._patiently(lambda: sqlite3.connect(where, uri=True, isolation_level=None, timeout=BUSY_STEP))
        self._connection = connection
        try:
            self._patiently(self._check)
            (mode,) = self._patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
            if mode != "wal":
                raise StoreError(f"the memory {self._path} cannot be kept here: this file system has no shared memory")
            connection.execute("PRAGMA synchronous = FULL")
            self._patiently(lambda: self._in_transaction(self._migrate))
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self) -> None:
        """Before anything is written."""
        connection, path = self._connection, self._path
        connection.execute("BEGIN")  # as of one moment: another process may be making it
        try:
            application, version = pragma(connection, "application_id"), pragma(connection, "user_version")
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        finally:
            connection.execute("ROLLBACK")
        if application != APPLICATION and (application or version or tables):
            raise StoreError(f"the memory {path} is a database of another program, and is left as it is; move it away")
        if version > len(STEPS):
            raise StoreError(f"the memory {path} was written by a newer quell, and is left as it is; update quell")
        if os.stat(path).st_size <= CHECK_UPTO:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if said != "ok":
                raise damaged(path, said, "memory")

    def _migrate(self) -> None:
        connection = self._connection
        for version in range(pragma(connection, "user_version"), len(STEPS)):
            for statement in STEPS[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")

    # -- with others

    def _in_transaction(self, work: Callable[[], object]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            work()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _patiently(self, work: Callable[[], T]) -> T:
        """Again, while another process has it locked. StoreError says what else is the matter."""
        until = time.monotonic() + LOCKED_FOR
        while True:
            try:
                return work()
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code != sqlite3.SQLITE_BUSY or self._unwanted() or time.monotonic() > until:
                    raise self._sentence(error) from None

    def _sentence(self, error: sqlite3.Error) -> StoreError:
        if "no such module: fts5" in str(error):
            return StoreError("the memory cannot be used: the SQLite of this Python has no FTS5")
        return refusal(self._path, error, "memory")


def _inspect(path: str) -> None:
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        found = os.stat(path)
    except FileNotFoundError:
        writable(path, folder, "memory")
        return
    except OSError as error:
        raise StoreError(f"the memory {path} cannot be opened: {error.strerror}; choose another place") from None
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"the memory {path} cannot be opened: it is no regular file; move it away")
    writable(path, path, "memory")
    writable(path, folder, "memory")


def _storable(text: str) -> str:
    """Without halves of characters, which SQLite does not take."""
    return text.encode("utf-8", "replace").decode()
