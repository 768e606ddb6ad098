"""Following the log: first what is in it, then what comes, with no gap and nothing twice (H36).

Whoever follows owns nothing: letting go of it, or being slow, changes nothing for anybody else (H20, H39).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ..events import Event
from .journal import PAGE

if TYPE_CHECKING:
    from .bus import Bus
    from .journal import Journal
    from .stream import Stream


class Tail:
    """An async iterator over the events after `after`, of one session or of all. Ends when the bus is closed.

    One that is too slow for the bus is cut off there, and goes on from the log. StoreError: the log broke, and nothing
    comes any more.
    """

    def __init__(self, journal: Journal, bus: Bus, after: int, session: str | None, name: str) -> None:
        self._stream: Stream | None = None
        self.last = after
        self._journal = journal
        self._bus = bus
        self._session = session
        self._name = name
        self._read: deque[Event] = deque()
        self._more = True  # there is something in the log that was not read
        self._upto = journal.last  # what comes after that comes by the stream
        self._stream = bus.stream(session=session, name=name)
        journal.followers.add(self)

    def __aiter__(self) -> Tail:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._read:
                event = self._read.popleft()
            elif self._more:
                page = await self._journal.page(self.last, self._upto, self._session)
                if self._stream is not None:  # else it was closed meanwhile
                    self._more = len(page) == PAGE
                    self._read.extend(page)
                continue
            elif self._stream is None:
                raise StopAsyncIteration
            elif self._journal.broken is not None:
                raise self._journal.broken.with_traceback(None)
            else:
                try:
                    event = await self._stream.__anext__()
                except StopAsyncIteration:
                    self._again()
                    continue
            if event.seq > self.last:
                self.last = event.seq
                return event

    def _again(self) -> None:
        """The stream has ended: cut off, or everything is."""
        cut = self._stream is not None and self._stream.cut
        self.close()  # what it had was read: the stream gives that before it ends
        if self._journal.broken is not None:
            raise self._journal.broken.with_traceback(None)
        if cut and not self._bus.closed:
            self._stream = self._bus.stream(session=self._session, name=self._name)
            self._upto = self._journal.last
            self._more = True

    def close(self) -> None:
        """Let go of it; it ends."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._read.clear()
        self._more = False

    def __del__(self) -> None:
        if self._stream is not None:
            self.close()
