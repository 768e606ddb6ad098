"""What waits for one client: bounded, in order, and given away in messages that are all or nothing.

Deltas of one request and channel are merged within a message, so whoever goes on after the `seq` of the last message
that it has misses nothing and sees nothing twice. What would be too much is dropped as a whole, with a reason (H39).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from ...events import Event, MessageDelta, ModelDelta, ToolOutput, encode

ENTRIES = 2000
"""Events, after merging, that may wait for one client."""
SIZE = 4 << 20
"""Bytes, about, that may wait for one client."""
MESSAGE = 256 << 10
"""Bytes after which a message is full. What is merged is merged within one: its `seq` stands for all of it."""
CROWD = 500
"""Events after which a message is full."""
PART = 64
"""Bytes that each merged delta takes besides its text."""

Delta = MessageDelta | ModelDelta | ToolOutput


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client wants to follow."""

    sessions: list[str] = []
    """None is all, and what belongs to no session too."""
    after: int | None = None
    """The `seq` of the last event that it has; without one it gets a snapshot, and what follows that."""
    board: bool = False
    """Cards as they change."""
    events: bool = True


class Entry:
    """One event of a message, or several deltas that became one."""

    __slots__ = ("body", "event", "texts")

    def __init__(self, event: Delta | None, body: bytes) -> None:
        self.event = event
        self.body = body
        self.texts: list[str] | None = None

    def merge(self, event: Delta) -> None:
        if self.texts is None:
            assert self.event is not None
            self.texts = [self.event.text]
        self.texts.append(event.text)
        self.event = event

    def encode(self) -> bytes:
        if self.texts is None or self.event is None:
            return self.body  # the one that all clients share
        return encode(msgspec.structs.replace(self.event, text="".join(self.texts)))


class Bundle:
    """One message of events in the making."""

    __slots__ = ("_entries", "_streams", "seq", "size")

    def __init__(self) -> None:
        self.seq = 0
        self.size = 0
        self._entries: dict[int, Entry] = {}  # by the seq of the last that is in it, so in order
        self._streams: dict[str, dict[tuple[str, int, str], int]] = {}  # by session: what can be merged with

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        return self.size >= MESSAGE or len(self._entries) >= CROWD

    def add(self, seq: int, session: str, body: bytes) -> None:
        """Text before it and after it is not merged: a reader sees what came in between where it came."""
        self._streams.pop(session, None)
        self._entries[seq] = Entry(None, body)
        self.seq = seq
        self.size += len(body)

    def stream(self, event: Delta, body: bytes) -> None:
        key = event.kind, event.request, "" if isinstance(event, MessageDelta) else event.channel
        streams = self._streams.setdefault(event.session, {})
        if (last := streams.get(key)) is None:
            entry = Entry(event, body)
            self.size += len(body)
        else:
            entry = self._entries.pop(last)
            entry.merge(event)
            self.size += len(event.text) + PART
        self._entries[event.seq] = entry
        streams[key] = self.seq = event.seq

    def encode(self) -> bytes:
        events = b",".join([one.encode() for one in self._entries.values()])
        return b'{"type":"events","events":[%b],"seq":%d}' % (events, self.seq)


class Outbox:
    """Filled by the feed and emptied by whoever sends, in the same loop. `over` says why it gave up, if it did."""

    def __init__(
        self,
        wish: Wish,
        sessions: Sequence[str] = (),
        *,
        look: Callable[[], object] | None = None,
        abort: Callable[[], object] = lambda: None,
    ) -> None:
        self.wish = wish
        self.sessions = tuple(dict.fromkeys(sessions))
        self.look = look or self.wake
        """Called by the feed when it has ended."""
        self.abort = abort
        """Called by the feed when the client does not take its goodbye then."""
        self.over = ""
        self.urgent = False
        """There is more than deltas: it does not wait for more."""
        self.skip = 0
        """Events up to this one the client has already."""
        self.since = 0
        """The cards that the client has are as of this event."""
        self.cards_due = False
        self._waiting: deque[Bundle] = deque()
        self._count = 0
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False

    def __len__(self) -> int:
        """How many events wait, after merging."""
        return self._count

    def __bool__(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return self._size

    # -- by the feed

    def put(self, event: Event, body: bytes) -> None:
        """Never blocks and never fails."""
        if self.over or event.seq <= self.skip:
            return
        waiting = self._waiting
        if not waiting or waiting[-1].full:
            waiting.append(Bundle())
        bundle = waiting[-1]
        count, size = len(bundle), bundle.size
        if isinstance(event, Delta):
            bundle.stream(event, body)
        else:
            bundle.add(event.seq, event.session, body)
            self.urgent = True
        self._count += len(bundle) - count
        self._size += bundle.size - size
        if self._count > ENTRIES:
            self._give_up(f"more than {ENTRIES} events waited to be taken")
        elif self._size > SIZE and self._count > 1:  # a single one is never too large
            self._give_up(f"more than {SIZE >> 20} MB waited to be taken")

    def _give_up(self, reason: str) -> None:
        self.clear()
        self.over = reason
        self.urgent = True

    def wake(self) -> None:
        """Whoever sends has something to look at."""
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- by whoever sends

    async def wait(self) -> None:
        """Until it was woken since the last time."""
        if not self._woken:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._woken = False

    def next(self) -> Bundle | None:
        """The next message, if there is one."""
        if not self._waiting:
            self.urgent = False
            return None
        bundle = self._waiting.popleft()
        self._count -= len(bundle)
        self._size -= bundle.size
        return bundle

    def clear(self) -> None:
        """Begin anew: what was dropped is in the log."""
        self._waiting.clear()
        self._count = self._size = 0
        self.over = ""
        self.urgent = False
