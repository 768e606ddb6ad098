"""The feed: every event reaches the board and every client that wants it, once, in order, encoded once for all.

What follows the log is on the kernel's loop, clients are on the front's. Neither waits for the other: what the front
cannot take yet stays in the log (H39).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...errors import QuellError
from ...events import Event, encode
from ...supervise.errand import Fact
from .bridge import post
from .shapes import Admission, Card

if TYPE_CHECKING:
    from ...kernel.runtime import Runtime
    from ...supervise import Scope
    from .board import Board
    from .outbox import Outbox

PACE = 0.025
"""Seconds that deltas wait for more of them."""
CARDS_PACE = 0.1
"""Seconds between two messages of cards."""
END_LIMIT = 0.5
"""Seconds, once the feed has ended, for clients to take their goodbye."""
SLICE = 250
"""Events at a time: then those who send get their turn."""
AHEAD = 5000
"""Events that may be on their way to the front; the rest waits in the log."""
_log = logging.getLogger("quell")


class Cards(msgspec.Struct, frozen=True, tag_field="type", tag="cards"):
    """What has changed on the board."""

    cards: list[Card]
    removed: list[str]
    admission: Admission
    seq: int


class Seen(msgspec.Struct, frozen=True):
    """A snapshot, but for the `seq` that its stream goes on after."""

    admission: Admission
    sessions: list[Card]


class Feed:
    """Lives on the front's loop. `ended` says why nothing comes any more."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.ended = ""
        self.cuts = 0
        self._last = 0
        self._outboxes: dict[Outbox, None] = {}
        self._of_all: dict[Outbox, None] = {}
        self._of_session: dict[str, dict[Outbox, None]] = {}
        self._of_board: dict[Outbox, None] = {}
        self._paced: dict[Outbox, None] = {}  # have deltas that wait for more
        self._pace: asyncio.TimerHandle | None = None
        self._cards_timer: asyncio.TimerHandle | None = None
        self._cards_at = 0.0
        self._admission = board.admission()
        self._admission_seq = 0
        self._expected: dict[asyncio.Future[None], int] = {}  # who waits for an event to be on the board
        self._snapshot: tuple[int, bytes] = -1, b""
        self._cards: tuple[int, int, bytes | None] = -1, -1, None

    def __len__(self) -> int:
        """How many clients there are."""
        return len(self._outboxes)

    @property
    def last(self) -> int:
        """The last event that was handed on, or that the board was built with."""
        return max(self._last, self.board.seq)

    # -- what comes

    def take(self, batch: Sequence[tuple[Event, bytes]]) -> None:
        """Each event with its one JSON form."""
        touched: dict[Outbox, None] = {}
        for event, body in batch:
            if event.seq <= self.last:
                continue
            self._show(event)
            self._last = event.seq
            for outboxes in (self._of_all, self._of_session.get(event.session, ())):
                for outbox in outboxes:
                    outbox.put(event, body)
                    touched[outbox] = None
        for future in [one for one, seq in self._expected.items() if seq <= self.last and not one.done()]:
            future.set_result(None)
        for outbox in touched:
            if outbox.urgent:
                outbox.wake()
            else:
                self._paced[outbox] = None
        loop = asyncio.get_running_loop()
        if self._paced and self._pace is None:
            self._pace = loop.call_later(PACE, self._flush)
        if self._of_board and self._cards_timer is None:
            due = max(0.0, self._cards_at + CARDS_PACE - loop.time())
            self._cards_timer = loop.call_later(due, self._deal)

    async def reach(self, seq: int, bound: float) -> None:
        """Until that event is on the board, or for so many seconds."""
        if self.last < seq:
            future = asyncio.get_running_loop().create_future()
            self._expected[future] = seq
            try:
                await asyncio.wait([future], timeout=bound)
            finally:
                del self._expected[future]

    def _show(self, event: Event) -> None:
        try:
            self.board.apply(event)
        except Exception:  # noqa: BLE001  a boundary: a card may be wrong, but no client misses an event
            _log.exception("the board could not take %s %d", event.kind, event.seq)
        admission = self.board.admission()
        if admission is not self._admission:
            self._admission, self._admission_seq = admission, event.seq

    def _flush(self) -> None:
        self._pace = None
        paced, self._paced = self._paced, {}
        for outbox in paced:
            outbox.wake()

    def _deal(self) -> None:
        self._cards_timer = None
        self._cards_at = asyncio.get_running_loop().time()
        for outbox in self._of_board:
            outbox.cards_due = True
            outbox.wake()

    def end(self, reason: str) -> None:
        """Nothing comes any more: everybody is told, and whoever does not take that in time is cut off. Idempotent."""
        if self.ended:
            return
        self.ended = reason or "the server stops"
        for outbox in list(self._outboxes):
            outbox.look()
        asyncio.get_running_loop().call_later(END_LIMIT, self._cut_off)

    def _cut_off(self) -> None:
        for outbox in list(self._outboxes):
            outbox.abort()

    # -- clients

    def attach(self, outbox: Outbox) -> int:
        """It gets what comes after the event that is returned."""
        self._outboxes[outbox] = None
        if outbox.wish.events and not outbox.sessions:
            self._of_all[outbox] = None
        elif outbox.wish.events:
            for session in outbox.sessions:
                self._of_session.setdefault(session, {})[outbox] = None
        if outbox.wish.board:
            self._of_board[outbox] = None
        return self.last

    def detach(self, outbox: Outbox) -> None:
        """Nothing of it is kept. Idempotent."""
        for one in (self._outboxes, self._of_all, self._of_board, self._paced):
            one.pop(outbox, None)
        for session in outbox.sessions:
            followers = self._of_session.get(session)
            if followers is not None:
                followers.pop(outbox, None)
                if not followers:
                    del self._of_session[session]

    # -- how things are, encoded once for all who ask at the same time

    def snapshot(self, seq: int, sessions: Sequence[str] = ()) -> bytes:
        """Of all sessions, or of some. `seq` is what the stream goes on after."""
        board = self.board
        if sessions:
            cards = [card for card in map(board.card, sessions) if card is not None]
            rest = msgspec.json.encode(Seen(board.admission(), cards))
        else:
            if self._snapshot[0] != self.last:
                self._snapshot = self.last, msgspec.json.encode(Seen(board.admission(), board.cards()))
            rest = self._snapshot[1]
        return b'{"type":"snapshot","seq":%d,%b' % (seq, rest[1:])

    def cards(self, since: int) -> bytes | None:
        """What changed after that event; None: nothing did."""
        if self._cards[:2] != (since, self.last):
            cards, removed = self.board.since(since)
            changed = cards or removed or self._admission_seq > since
            body = msgspec.json.encode(Cards(cards, removed, self._admission, self.last)) if changed else None
            self._cards = since, self.last, body
        return self._cards[2]


class Pump:
    """Carries events from the kernel's loop to the front's, many at a time. Bounded, and loses nothing."""

    def __init__(self, front: asyncio.AbstractEventLoop, feed: Feed) -> None:
        self._kernel = asyncio.get_running_loop()
        self._front = front
        self._feed = feed
        self._pending: deque[tuple[Event, bytes]] = deque()
        self._woken = False  # a call of `_drain` is on its way
        self._room: Fact[None] | None = None
        self._end: str | None = None

    async def follow(self, runtime: Runtime, after: int) -> None:
        """Until the runtime stops, or its log breaks: then clients are told why, after all that came before."""
        reason = "the server stops"
        try:
            count = 0
            async for event in runtime.follow(after):
                self._pending.append((event, encode(event)))
                if not self._woken and not self._wake():
                    return  # the front is gone
                count += 1
                if len(self._pending) >= AHEAD:
                    await self._wait()
                elif count % SLICE == 0:
                    await asyncio.sleep(0)  # whoever reads old pages must not hold the loop up
        except QuellError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001  a boundary: clients are told, and it is logged
            _log.exception("the feed failed")
            reason = f"the feed failed: {type(error).__name__}: {error}"
        finally:
            if runtime.failed is not None:
                reason = f"the log cannot be written: {runtime.failed}"
            self._end = reason
            self._wake()

    def _wake(self) -> bool:
        self._woken = True
        return post(self._front, self._drain)

    async def _wait(self) -> None:
        self._room = Fact(self._kernel)
        if len(self._pending) >= AHEAD:  # else the front was quicker, and will not tell
            await self._room.wait()
        self._room = None

    def _drain(self) -> None:
        """On the front's loop."""
        self._woken = False  # before looking: who comes after this look calls again
        pending = self._pending
        batch = [pending.popleft() for _ in range(min(SLICE, len(pending)))]
        if batch:
            self._feed.take(batch)
        if pending:
            self._woken = True
            self._front.call_soon(self._drain)
        elif self._end is not None:
            self._feed.end(self._end)
        if (room := self._room) is not None and len(pending) < AHEAD // 2:
            post(self._kernel, lambda: room.tell(None))


def pump(
    runtime: Runtime, scope: Scope, front: asyncio.AbstractEventLoop, feed: Feed, after: int
) -> asyncio.Task[None]:
    """On the kernel's loop: feed the front with all that comes after that event."""
    return scope.task(Pump(front, feed).follow(runtime, after), name="the feed of the clients")
