"""One client of the streams, whatever it is connected by: first what it misses, then what comes (H36).

It runs in the server's task; what the client says is heard beside that, by an errand, so that it ends when the client
has gone even if nothing happens, and nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import NoSessionError
from ...events import DELTAS, decode
from ...ports import Row
from ...supervise.errand import Errand, Fact
from .faults import BusyError
from .outbox import Bundle, Delta, Outbox, Wish

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from .board import Board
    from .feed import Feed

SEND_LIMIT = 20.0
"""Seconds for a client to take one message."""
LINGER = 5.0
"""Seconds for a client that is cut off to read why, before its connection is cut too."""
BYE_LINGER = 0.3
"""The same where the server stops."""
AHEAD_LIMIT = 1.0
"""Seconds for an event to come that the client has already: a cursor beyond that is of another log."""
BUSY = 0.25
"""Seconds before a runtime that was busy is asked again."""
PAGE = 500
"""Rows of the log that are read at a time."""
APART = 20
"""Sessions up to which each is looked up in the log by itself."""
_log = logging.getLogger("quell")

ReadRows = Callable[[int, int, str | None, int], Awaitable[list[Row]]]
"""`(after, upto, session, limit)`: the next rows of the log, of one session or of all."""


@dataclass(frozen=True)
class Hub:
    """What streams are made of."""

    feed: Feed
    board: Board
    read_rows: ReadRows


class BrokenError(Exception):
    """The connection broke under a message."""


class Client:
    """One connection, from its first word to its last."""

    def __init__(self, hub: Hub, scope: Scope, receive: Receive, send: Send) -> None:
        self._hub = hub
        self._feed = hub.feed
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._send = send
        self._transport: asyncio.Transport | None = (scope.get("extensions") or {}).get("quell", {}).get("transport")
        self._gone: Fact[None] = Fact(self._loop)
        self._aborted = False
        self._refused: tuple[int, str] | None = None
        self._cut = ""
        self._cursor = 0
        self._reading: asyncio.Timeout | None = None
        self._wanted: Wish | None = None  # and not begun yet
        self._outbox = self._outbox_of(Wish(after=0, events=False))
        self._beat_due = False
        self._heeds_end = True  # false: it came after the end, and is told how things are before it is told so

    # -- what each kind of connection does its own way

    def frame(self, kind: str, body: bytes, seq: int | None) -> Message:
        raise NotImplementedError

    def hear(self, message: Message) -> None:
        """What the client says."""

    async def beat(self) -> None:
        """A sign of life."""

    async def farewell(self, code: int, reason: str) -> None:
        """The last word."""
        raise NotImplementedError

    # -- its life

    async def attend(self) -> None:
        """Until it has gone, was refused or cut off, or the feed has ended."""
        Errand(self._loop, self._listen())
        try:
            while True:
                wish, self._wanted = self._wanted, None
                self._heeds_end |= wish is not None
                await self._follow(self._outbox if wish is None else self._outbox_of(wish))
                if self._is_done():
                    break
            await self._goodbye()
        except BrokenError as error:
            _log.debug("a client's connection broke: %s", error)
            self.abort()
        if self._aborted:
            await self._gone.wait()  # else the server takes it for a stream that was left unfinished

    def _is_done(self) -> bool:
        over = self._gone.known or self._aborted or self._refused or self._cut or self._has_ended()
        return bool(over or self._wanted is None)

    async def pass_on(self, message: Message) -> None:
        """BrokenError: it cannot be sent, and no other can."""
        alarm = self._loop.call_later(SEND_LIMIT, self._stuck)
        try:
            await self._send(message)
        except (OSError, RuntimeError) as error:  # the server has either for a client that has gone
            raise BrokenError(str(error)) from error
        finally:
            alarm.cancel()

    def want(self, wish: Wish) -> None:
        """From the next message on."""
        self._wanted = wish
        self.look()

    def refuse(self, code: int, reason: str) -> None:
        self._refused = self._refused or (code, reason)
        self.look()

    def abort(self) -> None:
        """Cut the connection: what waits to be written is dropped."""
        if self._transport is not None:
            self._aborted = True
            self._transport.abort()
        self.look()

    def look(self) -> None:
        """There is something that matters more than the next event."""
        self._outbox.wake()
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(self._loop.time())

    async def _listen(self) -> None:
        try:
            while (message := await self._receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
                self.hear(message)
        except Exception as error:  # noqa: BLE001  a boundary: whoever cannot be heard any more has gone
            _log.debug("a client could not be heard: %s: %s", type(error).__name__, error)
        finally:
            self._gone.tell(None)
            self.look()

    def _stuck(self) -> None:
        reason = f"it did not take a message within {SEND_LIMIT:g} s"
        _log.warning("a client was cut off after event %d: %s", self._cursor, reason)
        self._feed.cuts += 1
        self.abort()

    async def _goodbye(self) -> None:
        if self._gone.known or self._aborted:
            return
        if self._refused is not None:
            await self.farewell(*self._refused)
        elif self._cut:
            _log.warning("a client was cut off after event %d: %s", self._cursor, self._cut)
            self._feed.cuts += 1
            await self._tell("cut", {"type": "cut", "reason": self._cut, "seq": self._cursor})
            await self.farewell(1013, self._cut)
        else:
            await self._tell("bye", {"type": "bye", "reason": self._feed.ended})
            await self.farewell(1001, self._feed.ended)
        if self._transport is not None:  # closed or not: what was written may never be read
            self._loop.call_later(BYE_LINGER if self._feed.ended else LINGER, self._transport.abort)

    # -- what it is told

    def _outbox_of(self, wish: Wish) -> Outbox:
        sessions = [self._id_of(word) for word in wish.sessions]
        return Outbox(wish, sessions, look=self.look, abort=self.abort)

    def _id_of(self, word: str) -> str:
        """As the client names it; one that is not there may come."""
        try:
            return self._hub.board.resolve(word)
        except NoSessionError:
            return word

    async def _follow(self, outbox: Outbox) -> None:
        self._outbox = outbox
        upto = self._feed.attach(outbox)
        try:
            upto = await self._begin(outbox, upto)
            if not outbox.wish.events or await self._catch_up(outbox, upto):
                await self._live(outbox)
        finally:
            self._feed.detach(outbox)

    async def _begin(self, outbox: Outbox, upto: int) -> int:
        """Say how things are, if that is wanted. Returns up to where the log has what the outbox has not."""
        after, foreign = outbox.wish.after, False
        if after is not None and after > upto:  # the feed is about to come there, or the cursor is of another log
            await self._await(outbox, after)
            foreign = after > self._feed.last
            outbox.skip = 0 if foreign else after
            upto = self._feed.last if foreign else after
        self._cursor = upto if after is None or foreign else after
        outbox.since = self._feed.last
        if after is None or foreign or outbox.wish.board:
            sessions = () if outbox.wish.board else outbox.sessions
            await self._put("snapshot", self._feed.snapshot(self._cursor, sessions), self._cursor)
        return upto

    async def _await(self, outbox: Outbox, after: int) -> None:
        outbox.skip = after
        clock = self._loop.call_later(AHEAD_LIMIT, outbox.wake)
        await outbox.wait()
        clock.cancel()
        outbox.wake()  # what it was woken for is still there

    async def _catch_up(self, outbox: Outbox, upto: int) -> bool:
        """From the log, page by page, at the client's own pace. Whether it has all of it."""
        while self._cursor < upto or outbox.over:
            if self._left() or self._has_ended():
                return False
            if outbox.over:  # more came meanwhile than it holds: that is in the log too
                outbox.clear()
                upto = self._feed.last
            rows, reached = await self._read(outbox, upto)
            bundle = Bundle()
            for row in rows:
                if row.kind in DELTAS and isinstance(event := decode(row.body), Delta):
                    bundle.stream(event, row.body)
                else:
                    bundle.add(row.seq, row.session, row.body)
                if bundle.full:
                    await self._hand_over(bundle)
                    bundle = Bundle()
            if len(bundle):
                await self._hand_over(bundle)
            self._cursor = max(self._cursor, reached)
            await self._extras(outbox)
        return True

    async def _live(self, outbox: Outbox) -> None:
        while True:
            while not self._left() and (bundle := outbox.next()) is not None:
                await self._hand_over(bundle)
            if outbox.over:
                self._cut = f"{outbox.over}: reconnect with your cursor"
            if self._left() or self._has_ended():
                return
            await self._extras(outbox)
            await outbox.wait()

    def _left(self) -> bool:
        """Nothing more of this subscription is to be sent."""
        return bool(self._gone.known or self._aborted or self._refused or self._cut or self._wanted)

    def _has_ended(self) -> bool:
        return bool(self._feed.ended) and self._heeds_end

    async def _extras(self, outbox: Outbox) -> None:
        if outbox.cards_due:
            outbox.cards_due = False
            since, outbox.since = outbox.since, self._feed.last
            if (body := self._feed.cards(since)) is not None:
                await self._put("cards", body, None)
        if self._beat_due:
            self._beat_due = False
            await self.beat()

    async def _hand_over(self, bundle: Bundle) -> None:
        await self._put("events", bundle.encode(), bundle.seq)
        self._cursor = bundle.seq

    async def _tell(self, kind: str, words: dict[str, Any]) -> None:
        await self._put(kind, msgspec.json.encode(words), None)

    async def _put(self, kind: str, body: bytes, seq: int | None) -> None:
        await self.pass_on(self.frame(kind, body, seq))

    # -- the log

    async def _read(self, outbox: Outbox, upto: int) -> tuple[list[Row], int]:
        """The next rows, and how far they reach. A busy runtime is waited for; what fails is told the client."""
        while not self._left() and not self._has_ended():
            try:
                async with asyncio.timeout(None) as self._reading:
                    return await self._page(outbox.sessions, self._cursor, upto)
            except BusyError:
                await asyncio.sleep(BUSY)
            except Exception as error:  # noqa: BLE001  a boundary: told to the client, and logged
                if self._reading is None or not self._reading.expired():  # else by `look`
                    self._cut = f"the log could not be read: {type(error).__name__}: {error}"
            finally:
                self._reading = None
            await self._extras(outbox)
        return [], self._cursor

    async def _page(self, sessions: Sequence[str], after: int, upto: int) -> tuple[list[Row], int]:
        read = self._hub.read_rows
        apart: Sequence[str | None] = sessions if 0 < len(sessions) <= APART else (None,)
        pages = [await read(after, upto, session, PAGE) for session in apart]
        reached = min([page[-1].seq for page in pages if len(page) >= PAGE], default=upto)
        wanted = set(sessions)
        rows = [row for page in pages for row in page if row.seq <= reached and (not wanted or row.session in wanted)]
        rows.sort(key=lambda row: row.seq)
        return rows, reached
