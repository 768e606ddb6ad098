"""The journal: every event gets its number, goes to the log, and only then to whoever listens, in one order.

A request ends exactly once, by construction: a second end, and whatever else comes after the first, is not recorded.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import msgspec

from ..errors import LogUnreadableError, StoreError
from ..events import (
    ENDERS,
    OPENERS,
    Event,
    MessageDone,
    ModelRestarted,
    StopRequested,
    ToolStarted,
    TurnStarted,
    decode,
    encode,
    kind_of,
    mend,
)
from ..ports import Clock, Row, Store
from ..supervise.errand import Fact
from .ends import end_of
from .redaction import Redaction

E = TypeVar("E", bound=Event)
_log = logging.getLogger("quell")
_stamp = msgspec.structs.force_setattr
_DECIDES = ENDERS | {MessageDone.kind, ModelRestarted.kind}
"""What comes after all of a stream: nothing of it is held back any more."""
_NOT_INSIDE = frozenset({TurnStarted.kind, StopRequested.kind})

PAGE = 1000
"""Events that a reader fetches at a time."""


class Entry:
    """An event on its way to the disk."""

    __slots__ = ("event", "fact")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.fact: Fact[None] | None = None


class Follower(Protocol):
    """Whoever waits for the next event: there is none when the log breaks."""

    def close(self) -> None: ...


class Journal:
    """`publish` hands an event on, once it is safe; `failed` is called once if the log cannot be written any more."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        publish: Callable[[Event], None],
        failed: Callable[[StoreError], None],
        redaction: Redaction | None = None,
    ) -> None:
        self.redaction = redaction or Redaction()
        self.broken: StoreError | None = None
        self.sealed = False
        self.followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        self.requests: dict[int, Event] = {}
        self._begun: set[int] = set()  # tools whose intent is recorded
        self._inside: dict[tuple[str, int], dict[int, Event]] = {}  # the requests of each turn
        self._store = store
        self._clock = clock
        self._publish = publish
        self._failed = failed
        self._last = 0
        self._safe = 0
        self._waiting: deque[Entry] = deque()
        self._by_seq: dict[int, Entry] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """StoreError says why the log cannot be used."""
        self._loop = asyncio.get_running_loop()
        self._last = self._safe = await self._store.open(self._told)

    def seal(self) -> None:
        """Nothing is recorded any more; what was is on its way to the disk."""
        self.sealed = True

    async def close(self) -> None:
        self.seal()
        await self._store.close()

    # -- writing

    def emit(self, event: E) -> E:
        """Number and record it. What belongs to a request that has ended is not recorded: its `seq` stays 0.

        Secrets are masked, in the event itself; a part of a stream that is held back whole has no `seq` either.
        Never blocks and never fails: whether it is on disk, `committed` tells.
        """
        kind = event.kind
        if self.sealed:
            _log.debug("%s from %s came after the end", kind, event.source)
            return event
        if event.request and not self._belongs(event, kind):
            _log.debug("%s from %s came after request %d had ended", kind, event.source, event.request)
            return event
        redaction = self.redaction
        if redaction.active:
            if event.delta and not redaction.take(event):
                return event
            if redaction.held and kind in _DECIDES:
                for rest in redaction.rest(event.request):
                    self._record(rest, rest.kind)
        return self._record(event, kind)

    def _record(self, event: E, kind: str) -> E:
        self._last += 1
        _stamp(event, "seq", self._last)
        _stamp(event, "at", self._clock.now())
        if kind in OPENERS:
            self._enter(event)
        elif kind in ENDERS:
            self._leave(event.request)
        elif kind == ToolStarted.kind:
            self._begun.add(event.request)
        body = _body(event)
        if self.redaction.active and self.redaction.touches(event, body):
            body = self._masked(event)
        if self.broken is not None:
            return event
        try:
            self._store.append(Row(event.seq, event.at, kind_of(event), event.session, body), not event.delta)
        except Exception as error:  # noqa: BLE001  a boundary: what cannot be recorded stops everything
            self._break(error)
            return event
        if event.delta and not self._waiting:
            self._hand_on(event)
        else:
            self._by_seq[event.seq] = entry = Entry(event)
            self._waiting.append(entry)
        return event

    def _masked(self, event: Event) -> bytes:
        try:
            self.redaction.mask(event)
        except Exception:  # noqa: BLE001  a boundary: what cannot be walked through is put into words, as deep as these go
            mend(event)
            self.redaction.mask(event)
        return _body(event)

    def _belongs(self, event: Event, kind: str) -> bool:
        request = self.requests.get(event.request)
        return request is not None and (kind not in ENDERS or kind in request.opens)

    async def committed(self, event: Event) -> None:
        """Until it is on disk. StoreError: it is not, and will not be."""
        if not event.seq:
            raise StoreError(f"{event.kind} was not recorded: it came too late")
        if event.seq <= self._safe:
            return
        if self.broken is not None:
            raise self.broken.with_traceback(None)
        entry = self._by_seq.get(event.seq)
        if entry is None:
            return  # a delta that was handed on: it is in nobody's way
        if entry.fact is None:
            assert self._loop is not None
            entry.fact = Fact(self._loop)
        await entry.fact.wait()

    async def seen_to(self, event: Event) -> None:
        """Until it is on disk, or the log has broken, which everybody is told: for ends, which stand all the same."""
        try:
            await self.committed(event)
        except StoreError:
            pass

    async def flushed(self) -> None:
        """Until all that was emitted before is on disk, but for what streams."""
        if self.broken is not None:
            raise self.broken.with_traceback(None)
        if self._waiting:
            await self.committed(self._waiting[-1].event)

    async def record(self, event: E) -> E:
        """Emit it, and wait until it is on disk."""
        self.emit(event)
        await self.committed(event)
        return event

    def end_all(self, requests: Iterable[Event], reason: str, epoch: int | None = None) -> list[Event]:
        """End these, the last first; those that have an end already are left alone."""
        ended = []
        for request in sorted(requests, key=lambda one: -one.seq):
            end = end_of(request, reason, request.seq in self._begun)
            if epoch is not None:
                _stamp(end, "epoch", epoch)
            if self.emit(end).seq:
                ended.append(end)
        return ended

    def open_in(self, session: str, turn: int) -> list[Event]:
        """What a turn asked for and has no end yet. Stops are no part of the turn that they end."""
        return list(self._inside.get((session, turn), {}).values())

    def adopt(self, requests: Iterable[Event], begun: Iterable[int]) -> None:
        """At start: what a crash left open."""
        for one in requests:
            self._enter(one)
        self._begun.update(begun)

    def _enter(self, request: Event) -> None:
        self.requests[request.seq] = request
        if request.kind not in _NOT_INSIDE:
            self._inside.setdefault((request.session, request.turn), {})[request.seq] = request

    def _leave(self, seq: int) -> None:
        request = self.requests.pop(seq)
        self._begun.discard(seq)
        if request.kind not in _NOT_INSIDE:
            turn = self._inside[request.session, request.turn]
            del turn[seq]
            if not turn:
                del self._inside[request.session, request.turn]

    # -- reading

    async def read(
        self, *, after: int = 0, upto: int | None = None, session: str | None = None, kinds: tuple[str, ...] = ()
    ) -> list[Event]:
        """All of it, in order. What was emitted before is among it."""
        found: list[Event] = []
        while True:
            rows = await self._store.read(after=after, upto=upto, session=session, kinds=kinds, limit=PAGE)
            found += [_event(row) for row in rows]
            if len(rows) < PAGE:
                return found
            after = rows[-1].seq

    async def page(self, after: int, upto: int, session: str | None) -> list[Event]:
        """The next few, in order."""
        rows = await self._store.read(after=after, upto=upto, session=session, limit=PAGE)
        return [_event(row) for row in rows]

    async def rows(
        self, after: int, upto: int | None, session: str | None, kinds: tuple[str, ...] = (), limit: int = PAGE
    ) -> list[Row]:
        """The next few, as they are written."""
        return await self._store.read(after=after, upto=upto, session=session, kinds=kinds, limit=limit)

    @property
    def last(self) -> int:
        """The last number that was given."""
        return self._last

    # -- inside

    def _told(self, safe: int | Exception) -> None:
        """By the store, in the loop."""
        if isinstance(safe, Exception):
            self._break(safe)
            return
        self._safe = max(self._safe, safe)
        waiting = self._waiting
        while waiting and (waiting[0].event.seq <= self._safe or waiting[0].event.delta):
            entry = waiting.popleft()
            self._by_seq.pop(entry.event.seq, None)
            if entry.fact is not None:
                entry.fact.tell(None)
            self._hand_on(entry.event)

    def _hand_on(self, event: Event) -> None:
        try:
            self._publish(event)
        except Exception as error:  # noqa: BLE001  a boundary: the log is written, whoever listens
            _log.error("%s could not be published: %s: %s", event.kind, type(error).__name__, error)

    def _break(self, error: Exception) -> None:
        if self.broken is not None:
            return
        self.broken = error if isinstance(error, StoreError) else StoreError(f"{type(error).__name__}: {error}")
        lost = list(self._waiting)
        self._waiting.clear()
        self._by_seq.clear()
        for entry in lost:
            if entry.fact is not None:
                entry.fact.fail(self.broken)
        for follower in list(self.followers):
            follower.close()
        self._failed(self.broken)


def _event(row: Row) -> Event:
    """Whatever wrote the row: a fault of the disk, or somebody else's hand."""
    try:
        return decode(row.body)
    except (ValueError, RecursionError) as error:
        raise LogUnreadableError(f"event {row.seq} of the log cannot be read ({error}): the log is damaged") from None


def _body(event: Event) -> bytes:
    """Encoded once, and known to be readable: a row that is not would keep the runtime from ever starting again."""
    try:
        body = encode(event)
        decode(body)
    except (ValueError, TypeError, RecursionError, OverflowError):
        mend(event)
        body = encode(event)
    return body
