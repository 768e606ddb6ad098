"""The output of a command, read as it comes and kept in bounded room: its beginning, its end, and how much is between.

It is read to the end of the process, whoever asks and whoever is cancelled, so that no command stands still for want
of a reader.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..supervise.errand import see_to

if TYPE_CHECKING:
    from ..supervise import Process

HEAD = 10_000  # characters kept of the beginning
TAIL = 20_000  # characters kept of the end, where errors are
LIVE_LIMIT = 1 << 18  # characters shown while it runs: each of them goes into the log
PACE = 0.05  # seconds between two pieces that are shown: a command may write a byte at a time
_CHUNK = 1 << 16


class Tape:
    """`show` is called with pieces of text, until `mute`."""

    def __init__(self, process: Process, show: Callable[[str], None] | None = None) -> None:
        assert process.stdout is not None
        self.total = 0
        """Characters that have come."""
        self._head = ""
        self._tail = ""
        self._show = show
        self._unshown = ""
        self._shown = 0
        self._beat: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        reader = process.stdout
        self.ended = see_to(self._loop, lambda: self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := await reader.read(_CHUNK):
            self._take(decoder.decode(data))
        self._take(decoder.decode(b"", final=True))

    def _take(self, text: str) -> None:
        self.total += len(text)
        room = HEAD - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        if len(self._tail) > 2 * TAIL:
            self._tail = self._tail[-TAIL:]
        if self._show is not None:
            self._unshown += text
            if self._beat is None:
                self.flush()

    def text(self, after: int = 0) -> str:
        """What has come since that many characters, with a mark where some are missing."""
        tail = self._tail[-TAIL:]
        start = self.total - len(tail)
        missing = start - max(after, len(self._head))
        if missing > 0:
            return f"{self._head[after:]}\n[… {missing} characters left out …]\n{tail}"
        return self._head[after:] + tail[max(0, after - start) :]

    def flush(self) -> None:
        """Show what has not been shown."""
        text, self._unshown = self._unshown[: LIVE_LIMIT - self._shown], ""
        self._shown += len(text)
        show = self._show
        if show is None or not text:
            return
        if self._beat is not None:
            self._beat.cancel()
        if self._shown >= LIVE_LIMIT:
            text += "\n[quell: what follows is not shown live]\n"
            self.mute()
        else:
            self._beat = self._loop.call_later(PACE, self._next)
        show(text)

    def _next(self) -> None:
        self._beat = None
        self.flush()

    def mute(self) -> None:
        """Show nothing any more: who listened is gone."""
        self._show = None
        self._unshown = ""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
