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
SEAM = 5000  # characters on each side of a cut in which a secret is looked for
_CHUNK = 1 << 16

Redact = Callable[[str], str]


def seam(text: str, near: int, redact: Redact) -> int:
    """The first place from there on where no secret is cut in two: half a one would not be known, and be shown."""
    for at in range(near, min(len(text), near + SEAM)):
        before, after = text[max(0, at - SEAM) : at], text[at : at + SEAM]
        if redact(before + after) == redact(before) + redact(after):
            return at
    return min(len(text), near + SEAM)


class Tape:
    """`show` is called with pieces of text, until `mute`. `redact` masks the secrets of a text."""

    def __init__(self, process: Process, redact: Redact, show: Callable[[str], None] | None = None) -> None:
        assert process.stdout is not None
        self.total = 0
        """Characters that have come."""
        self._head = ""
        self._tail = ""
        self._redact = redact
        self._show = show
        self._unshown = ""
        self._shown = 0
        self._last = ""  # of what was shown
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
        room = HEAD + SEAM - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        if len(self._tail) > 2 * TAIL:
            self._tail = self._tail[-TAIL - SEAM :]
        if self._show is not None:
            self._unshown += text
            if self._beat is None:
                self.flush()

    def text(self, after: int = 0) -> str:
        """What has come since that many characters, with a mark where some are missing."""
        head, tail, redact = self._head, self._tail, self._redact
        start = self.total - len(tail)  # where what is known of the end begins
        head_ends = seam(head, HEAD, redact)
        tail_begins = start + seam(tail, max(0, len(tail) - TAIL), redact)
        if head_ends >= tail_begins or self.total <= HEAD + TAIL:
            whole = head + tail
            return whole[seam(whole, after, redact) :]
        if after >= tail_begins:
            return tail[seam(tail, after - start, redact) :]
        first = head[seam(head, after, redact) : head_ends] if after < head_ends else ""
        missing = tail_begins - max(after, head_ends)
        return f"{first}\n[… {missing} characters left out …]\n{tail[tail_begins - start :]}"

    def flush(self) -> None:
        """Show what has not been shown."""
        text, self._unshown = self._unshown, ""
        show, room = self._show, LIVE_LIMIT - self._shown
        if show is None or not text:
            return
        if self._beat is not None:
            self._beat.cancel()
        if len(text) > room:
            near = self._last + text
            text = near[len(self._last) : seam(near, len(self._last) + room, self._redact)]
            text += "\n[quell: what follows is not shown live]\n"
            self.mute()
        else:
            self._shown += len(text)
            self._last = (self._last + text)[-SEAM:]
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
