"""The log as a SQLite file: what is in it, which versions there were, and which files are refused untouched.

A file is looked at read-only before anything opens it to write. What is damaged, newer or somebody else's stays byte
for byte as it is, and the refusal says what to do.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from urllib.parse import quote

from ..errors import LogUnreadableError, StoreError

APPLICATION = 0x5175656C
"""`Quel`, in the header of the file: says whose it is."""

RARE = ("admission.", "runtime.", "session.")
"""Kinds that are asked for over all sessions, at every start and in every list: they must not cost a look at all."""
IS_RARE = f"substr(kind, 1, 8) IN ({', '.join(repr(kind[:8]) for kind in RARE)})"

STEPS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE events (
            seq INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, session TEXT NOT NULL, body BLOB NOT NULL
        ) STRICT""",
        "CREATE INDEX events_by_session ON events (session)",  # and by seq within, as it is the row's id
        f"CREATE INDEX events_rare ON events (kind) WHERE {IS_RARE}",
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        "INSERT INTO meta VALUES ('reserved', 0)",
        f"PRAGMA application_id = {APPLICATION}",
    ),
)
"""The step at n leads from version n to n+1, in one transaction. Old ones are never edited."""

LOG = "log"
"""What it is called in a sentence; there are other files of SQLite."""
CHECK_UPTO = 4 * 1024 * 1024
"""Bytes: a file up to this size is checked whole when it is opened; that takes some 10 ms."""
BUSY_STEP = 0.1
"""Seconds that one call waits for another process's lock. Whoever wants to wait longer tries again."""


def connect(path: str) -> sqlite3.Connection:
    """To write. Every commit is on disk when it returns."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:  # and is not opened here: a close of ours would drop the locks that SQLite holds on it
        pass
    connection = sqlite3.connect(f"{uri(path)}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_STEP)
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(f"the log {path} cannot be kept here: this file system has no shared memory; move it")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # a deleted session is not left in free pages
    except BaseException:
        connection.close()
        raise
    return connection


def connect_readonly(path: str) -> sqlite3.Connection:
    """To read, beside a writer if there is one; makes no file where nobody writes."""
    # Without a -wal nobody has it open and nothing was left: then SQLite need not make files to be safe from others.
    how = "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1"
    return sqlite3.connect(f"{uri(path)}?{how}", uri=True, isolation_level=None, timeout=BUSY_STEP)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring it to the newest version, a step at a time."""
    while (version := pragma(connection, "user_version")) < len(STEPS):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in STEPS[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def inspect(path: str) -> None:
    """StoreError where this must not or cannot be written as a log. What is not there yet is fine."""
    folder = os.path.dirname(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        if not os.path.isdir(folder):
            raise StoreError(f"the log {path} cannot be made: there is no folder {folder}; make it") from None
        writable(path, folder)
        return
    except OSError as error:
        raise StoreError(f"the log {path} cannot be read: {error.strerror}; choose another place") from None
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise StoreError(f"the log {path} cannot be opened: it is {what}; name a file")
    writable(path, path)
    writable(path, folder)
    if found.st_size:
        try:
            with closing(connect_readonly(path)) as connection:
                check(connection, path)
        except sqlite3.Error as error:
            raise refusal(path, error) from None


def check(connection: sqlite3.Connection, path: str) -> int:
    """Its version. StoreError where it is somebody else's, newer, or seen to be damaged."""
    application, version = pragma(connection, "application_id"), pragma(connection, "user_version")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION and (application or version or tables):
        raise LogUnreadableError(f"the log {path} is a database of another program; choose another place for the log")
    if version > len(STEPS):
        raise LogUnreadableError(
            f"the log {path} was written by a newer quell (version {version} of the log, this one knows {len(STEPS)});"
            " update quell, or choose another place for the log"
        )
    if version:
        connection.execute("SELECT max(seq) FROM events").fetchone()
    if os.stat(path).st_size <= CHECK_UPTO:
        (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            raise damaged(path, said)
    return version


def refusal(path: str, error: sqlite3.Error, what: str = LOG) -> StoreError:
    """What SQLite says, in a sentence that says what to do; `what` is the file for a person."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        said = f"the {what} {path} is not a database, and is left as it is; move it away, or name another file"
        return LogUnreadableError(said) if what == LOG else StoreError(said)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"the {what} {path} is locked by another process; end that one, or name another file")
    if code == sqlite3.SQLITE_FULL:
        return StoreError(f"the {what} {path} cannot be written: the disk is full; make room")
    if code == sqlite3.SQLITE_READONLY:
        return StoreError(f"the {what} {path} cannot be written: {error}; check permissions and the disk")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreError(f"the {what} {path} cannot be used: {error}; check permissions and the disk")
    misuse = isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError)  # ours: says nothing of the file
    if (
        not misuse
        and isinstance(error, sqlite3.DatabaseError)
        and code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)
    ):
        return damaged(path, str(error), what)
    return StoreError(f"the {what} {path} cannot be used: {type(error).__name__}: {error}")


def damaged(path: str, why: str, what: str = LOG) -> StoreError:
    words = " ".join(why.split())
    said = f"the {what} {path} is damaged, and is left as it is ({words}); move it away, or restore a copy"
    return LogUnreadableError(said) if what == LOG else StoreError(said)


def writable(path: str, needed: str, what: str = LOG) -> None:
    """StoreError where the file or folder that is needed for it cannot be written."""
    if os.access(needed, os.R_OK | os.W_OK, effective_ids=True):
        return
    if os.statvfs(needed).f_flag & os.ST_RDONLY:
        raise StoreError(f"the {what} {path} cannot be written: the file system is read-only; choose another place")
    raise StoreError(
        f"the {what} {path} cannot be written: no permission for {needed}; grant it, or choose another place"
    )


def pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def uri(path: str) -> str:
    return f"file:{quote(path)}"
