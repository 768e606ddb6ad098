"""What a command has to say while an event loop turns: written in order, and only when somebody takes it.

A pager that does not read, or a terminal that is held by Ctrl+S, holds up the output and nothing else.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import time
from collections import deque
from collections.abc import Callable

from .screen import ReaderGone, Screen

_PIECE = 1024  # bytes at a time: a pipe or terminal that is ready takes these without waiting
LAST = 0.5
"""Seconds for what is left to be taken, when all else is over."""


class Outlet:
    """Standard output and standard error together: what is said on both stands on a terminal in the order of words."""

    def __init__(self) -> None:
        self.gone: set[int] = set()
        """Those that nobody reads any more: what is said there is dropped."""
        self.fault = ""
        """Why the answer cannot be written, where that is not for want of a reader: a full disk."""
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._watched: int | None = None  # the one that is waited for
        self._then: list[Callable[[], object]] = []
        self._late = False  # whoever does not take it now is not waited for
        self._broke = False  # the reader has gone, and nobody was told

    def screen(self, fd: int) -> Said:
        return Said(self, fd)

    def put(self, fd: int, data: bytes) -> None:
        """Say it once all before it is said; see `kick`."""
        if data and fd not in self.gone:
            self._waiting.append((fd, data))

    def kick(self, then: Callable[[], object] | None = None) -> None:
        """Write what is taken now, the rest as soon as it is; then call that."""
        if then is not None:
            self._then.append(then)
        self._unwatch()
        while self._waiting:
            fd, data = self._waiting.popleft()
            if not ready(fd):
                if self._late:
                    self._lose(fd)
                    continue
                self._waiting.appendleft((fd, data))
                self._watched = fd
                asyncio.get_running_loop().add_writer(fd, self.kick)
                return
            rest = data[self._write(fd, data[:_PIECE]) :]
            if rest and fd not in self.gone:
                self._waiting.appendleft((fd, rest))
        calls, self._then = self._then, []
        for call in calls:
            call()

    async def flush(self) -> None:
        """Until all is written. ReaderGone, once, when nobody reads the answer any more."""
        self.kick()
        if self._waiting:
            done = asyncio.Event()
            self._then.append(done.set)
            await done.wait()
        if self._broke:
            self._broke = False
            raise ReaderGone

    def hurry(self, seconds: float) -> None:
        """It is tried for so long; then what is not taken at once is dropped."""
        asyncio.get_running_loop().call_later(seconds, self._hurry_over)

    def _hurry_over(self) -> None:
        self._late = True
        self.kick()

    def last(self) -> None:
        """Without a loop, and for a moment only: what is left."""
        deadline = time.monotonic() + LAST
        while self._waiting:
            fd, data = self._waiting.popleft()
            while data and fd not in self.gone:
                if ready(fd, max(0.0, deadline - time.monotonic())):
                    data = data[self._write(fd, data[:_PIECE]) :]
                else:
                    self._lose(fd)

    def now(self, fd: int, data: bytes) -> bool:
        """At once, and only if nothing waits and it can be: for what means nothing later."""
        if self._waiting or fd in self.gone or not ready(fd):
            return False
        return self._write(fd, data) == len(data) and fd not in self.gone

    def close(self) -> None:
        """Before the loop is closed."""
        self._unwatch()
        self._then.clear()

    def _unwatch(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_writer(self._watched)
            self._watched = None

    def _write(self, fd: int, data: bytes) -> int:
        """How much of it. A terminal that is gone and a reader that is gone are one thing."""
        try:
            return os.write(fd, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            if fd == 1 and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                self.fault = os.strerror(error.errno)
            self._lose(fd)
            return len(data)

    def _lose(self, fd: int) -> None:
        self.gone.add(fd)
        self._broke = self._broke or fd == 1
        self._waiting = deque(one for one in self._waiting if one[0] != fd)


class Said(Screen):
    """A screen of an outlet."""

    def __init__(self, outlet: Outlet, fd: int) -> None:
        super().__init__(fd)
        self._outlet = outlet

    def _put(self, text: str) -> None:
        self._outlet.put(self._fd, text.encode(errors="backslashreplace"))

    def control(self, sequence: str) -> None:
        """Words of our own to the terminal, such as to clear a line; nothing on one that cannot."""
        if self.moves:
            self._put(sequence)

    def now(self, text: str, sequence: str = "") -> bool:
        """At once or not at all: what stands on the line only until something else is said."""
        return self.moves and self._outlet.now(self._fd, f"{sequence}{self.painted('dim', text)}".encode())


def ready(fd: int, seconds: float = 0.0) -> bool:
    """Whether it takes something now, or fails; files always do."""
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(seconds * 1000))
