"""The memory `sqlite`: what an agent was told to remember is on disk when it is told so, and no other agent finds it.

One thread owns the connection (H50); several processes may share the file (H51). It is opened when it is first used,
and closed with its plugin. Cancelling whoever asks loses nothing and leaves nothing.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..errors import StoreError, UsageError
from ..ports import PluginContext, Whose
from ..supervise.errand import Fact
from .notes import Note, Notes

FILE = "memory.sqlite"
LONGEST = 100_000
"""Characters of one note."""
MOST_FOUND = 100
LAST_WAIT = 1.0
"""Seconds that closing waits for other processes."""

Look = Callable[[Notes], Any]


class Wish:
    """A note to keep, or a look at those that there are, and what becomes of it."""

    def __init__(self, what: Note | Look) -> None:
        self.what = what
        self.loop = asyncio.get_running_loop()
        self.done: Fact[Any] = Fact(self.loop)

    def say(self, call: Callable[..., object], *args: object) -> None:
        """From the thread."""
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop is closed, and nobody is left to hear it
            pass


class SqliteMemory:
    """`quell.ports.Memory`, in this file; without one, every call says so."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path) if path else ""
        self._wishes: SimpleQueue[Wish | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing: Wish | None = None
        self._patient_until = math.inf

    async def store(self, whose: Whose, text: str) -> None:
        """On disk when it returns; when the asker is cancelled, a moment later."""
        if len(text) > LONGEST:
            raise UsageError(f"a note of {len(text)} characters is too long to be remembered; {LONGEST} is the most")
        await self._ask((time.time(), whose.agent, whose.session, whose.cwd, text)).wait()

    async def recall(self, whose: Whose, query: str, limit: int) -> list[str]:
        """What this agent has stored, the best match first; for a question without any words, the latest."""
        most = max(1, min(limit, MOST_FOUND))
        found: list[str] = await self._ask(lambda notes: notes.find(whose, query, most)).wait()
        return found

    async def close(self) -> None:
        """What was asked for before is done first. Idempotent."""
        if self._closing is None:
            self._closing = Wish(_nothing)
            self._patient_until = time.monotonic() + LAST_WAIT
            self._wishes.put(None)
        if self._thread is None:
            return
        try:
            await self._closing.done.insist()
        finally:
            self._thread.join()  # only its last few instructions are left

    async def __aenter__(self) -> SqliteMemory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _ask(self, what: Note | Look) -> Fact[Any]:
        if not self.path:
            raise UsageError("there is no memory here: this runtime was given no folder for one (`home`)")
        if self._closing is not None:
            raise StoreError(f"the memory {self.path} is closed")
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="quell memory", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise StoreError(f"the memory {self.path} cannot be opened: {error}") from None
            self._thread = thread
        wish = Wish(what)
        self._wishes.put(wish)
        return wish.done

    # -- the thread

    def _run(self) -> None:
        notes: Notes | None = None
        going_on = True
        while going_on:
            batch = self._next()
            going_on = batch[-1] is not None
            wishes = [wish for wish in batch if wish is not None]
            try:
                if notes is None and wishes:
                    notes = Notes(self.path, lambda: time.monotonic() > self._patient_until)
                if notes is not None:
                    _grant(notes, wishes)
            except Exception as error:  # noqa: BLE001  a boundary: told to whoever asked, and the next one tries again
                for wish in wishes:
                    wish.say(wish.done.fail, _said(self.path, error))
                if notes is not None:
                    notes.close()
                    notes = None
        if notes is not None:
            notes.close()
        assert self._closing is not None
        self._closing.say(self._closing.done.tell, None)

    def _next(self) -> list[Wish | None]:
        """Whatever waits, one at least."""
        batch = [self._wishes.get()]
        while batch[-1] is not None and not self._wishes.empty():
            batch.append(self._wishes.get())
        return batch


def _grant(notes: Notes, wishes: list[Wish]) -> None:
    """In their order; notes that come together are committed together."""
    kept: list[Wish] = []
    for wish in wishes:
        if isinstance(wish.what, tuple):
            kept.append(wish)
        else:
            _keep(notes, kept)
            kept = []
            wish.say(wish.done.tell, wish.what(notes))
    _keep(notes, kept)


def _keep(notes: Notes, wishes: list[Wish]) -> None:
    if wishes:
        notes.keep([wish.what for wish in wishes if isinstance(wish.what, tuple)])
        for wish in wishes:
            wish.say(wish.done.tell, None)


def _said(path: str, error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    return StoreError(f"the memory {path} cannot be used: {type(error).__name__}: {error}")


def _nothing(notes: Notes) -> None:
    """What the last wish is."""


class _Plugin:
    name = "memory"

    async def setup(self, ctx: PluginContext) -> None:
        memory = SqliteMemory(os.path.join(ctx.home, FILE) if ctx.home else "")
        await ctx.scope.enter(memory)
        ctx.memory("sqlite", memory)


plugin = _Plugin()
