"""Logs to try things on: rows, and an open store that remembers what it was told."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from quell.ports import Row
from quell.stores import disk, schema
from quell.stores.sqlite import SqliteStore
from tests.supervise.loops import until


def row(seq: int, session: str = "s", kind: str = "message.user", body: bytes = b"{}") -> Row:
    return Row(seq, seq / 8, kind, session, body)


class Told:
    """What a store said, in order."""

    def __init__(self) -> None:
        self.words: list[int | Exception] = []

    def __call__(self, word: int | Exception) -> None:
        self.words.append(word)

    @property
    def safe(self) -> int:
        return max((word for word in self.words if isinstance(word, int)), default=0)

    @property
    def failures(self) -> list[Exception]:
        return [word for word in self.words if isinstance(word, Exception)]

    async def reaches(self, seq: int) -> None:
        assert await until(lambda: self.safe >= seq), f"told only {self.words[-3:]}, not {seq}"


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[SqliteStore, Told, int]]:
    store, told = SqliteStore(path), Told()
    last = await store.open(told)
    try:
        yield store, told, last
    finally:
        await store.close()


class Spied(sqlite3.Connection):
    """A connection that tells what it executes, and may be made to fail."""

    heard: Callable[[str], None] = staticmethod(lambda text: None)

    def execute(self, text: str, *args: object) -> sqlite3.Cursor:
        type(self).heard(text)
        return super().execute(text, *args)  # type: ignore[arg-type]  # handed on


def spy(monkeypatch: pytest.MonkeyPatch, heard: Callable[[str], None]) -> None:
    """Every statement of writers made from here on is heard before it is executed; what `heard` raises, it raises."""
    real = sqlite3.connect

    class Heard(Spied):
        pass

    Heard.heard = staticmethod(heard)

    def connect(path: str) -> sqlite3.Connection:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite3, "connect", lambda *args, **named: real(*args, **named, factory=Heard))
            return schema.connect(path)

    monkeypatch.setattr(disk, "connect", connect)
