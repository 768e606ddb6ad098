"""The bus hands every event to whoever wants it, in order per session and subscriber, and nobody can hold it up.

`publish` only enqueues: handlers run in workers, one for each session and subscriber (H30); a reply resolves its waiter
at once and a request reaches its responder in a task of its own, so that no cycle of requests can lock (H31).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..errors import BusClosedError, UsageError
from ..events import ENDERS, OPENERS, Event, PluginError, PluginEvent, SubscriberCut, kind_of
from ..supervise.errand import Fact
from .handling import Done, Failed, Handling
from .responding import Responder, Responding
from .stream import Stream
from .subscription import Subscription, said
from .sweeper import Sweeper

if TYPE_CHECKING:
    from ..ports import Handler
    from ..supervise.scope import Scope

T = TypeVar("T")
S = TypeVar("S", bound=Subscription)

DEADLINE = 30.0
"""Seconds that a handler has for one event."""
LIMIT = 10_000
"""Events that may wait for one subscriber."""
OF_ERRORS = frozenset({"plugin.error", "runtime.error", "subscriber.cut"})
"""A failure over one of these is a record in the program's own log, and no event: else errors would breed errors."""
_log = logging.getLogger("quell")


class Route:
    """Who wants one kind."""

    __slots__ = ("handlings", "responders", "special", "streams")

    def __init__(self, kind: str, everybody: Sequence[Subscription]) -> None:
        wanting = [one for one in everybody if one.wants(kind)]
        self.handlings = tuple(one for one in wanting if isinstance(one, Handling))
        self.streams = tuple(one for one in wanting if isinstance(one, Stream))
        self.responders = tuple(one for one in wanting if isinstance(one, Responding))
        self.special = kind in ENDERS or bool(self.responders)


class Bus:
    """Everything here is called from the thread of the event loop. `deadline` is read when it is used."""

    def __init__(
        self,
        scope: Scope,
        *,
        emit: Callable[[Event], object] | None = None,
        deadline: float = DEADLINE,
        limit: int = LIMIT,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.emit = emit
        self.deadline = deadline
        self.limit = limit
        self.closed = False
        self.sweeper = Sweeper(self.loop)
        self._scope = scope
        self._general: list[Subscription] = []
        self._particular: dict[str, list[Subscription]] = {}  # by session: a thousand of them cost the others nothing
        self._routes: dict[str, Route] = {}  # by kind, made when first needed
        self._waiters: dict[int, tuple[Sequence[str], Fact[Event]]] = {}
        self._drained: Fact[None] | None = None

    # -- publishing

    def publish(self, event: Event) -> None:
        """Enqueue it for everybody who wants it. BusClosedError when nobody would hear it (H33)."""
        try:
            route = self._routes[event.kind]
        except KeyError:
            route = self._route(event)
        session = event.session
        for one in route.handlings:  # as Handling.take does: the one loop that every delivery passes
            if (room := one.room) > 0:
                one.room = room - 1
                try:
                    one.lanes[session].append(event)
                except KeyError:
                    one.begin(event)
            else:
                one.full(event)
        for stream in route.streams:
            stream.take(event)
        if self._particular and session in self._particular:
            kind = kind_of(event)
            for each in tuple(self._particular[session]):
                if each.wants(kind):
                    each.take(event)
        if route.special or self._waiters:  # last: what they do at once finds this event handed to all
            self._answer(event, route)

    def _route(self, event: Event) -> Route:
        if self.closed:
            raise BusClosedError(f"the bus is closed: nobody would hear {kind_of(event)}")
        route = Route(kind_of(event), self._general)
        if not isinstance(event, PluginEvent):  # plugins may make up any number of kinds
            self._routes[event.kind] = route
        return route

    def _answer(self, event: Event, route: Route) -> None:
        kind = kind_of(event)
        waiting = self._waiters.get(event.request) if event.request else None
        if waiting is not None and (not waiting[0] or kind in waiting[0]):
            del self._waiters[event.request]
            waiting[1].tell(event)
        elif kind in ENDERS and not event.request:
            _log.warning("%s from %s answers without saying which request: nobody can get it", kind, event.source)
        elif kind in ENDERS and _log.isEnabledFor(logging.DEBUG):
            _log.debug("nobody waits, or waits any more, for %s of request %d", kind, event.request)
        for responder in route.responders:
            responder.take(event)

    # -- subscribing

    def subscribe(
        self,
        handler: Handler,
        *,
        kinds: Sequence[str] = (),
        session: str | None = None,
        name: str = "",
        deadline: float | None = None,
        limit: int | None = None,
        failed: Failed | None = None,
        done: Done | None = None,
        scope: Scope | None = None,
    ) -> Subscription:
        """Call the handler with every such event from now on. Kinds that end in a dot are prefixes; none is all.

        `failed` is called after each failure, a missed deadline included, `done` after each success (H38). Who gives
        `failed` tells of failures; else the bus does. With a `scope` the handler runs in it, and all ends with it.
        """
        called = name or getattr(handler, "__qualname__", None) or type(handler).__qualname__
        most = self.limit if limit is None else limit
        home = self._scope if scope is None else scope
        return self._enter(Handling(self, handler, called, kinds, session, home, deadline, most, failed, done))

    def stream(
        self, *, kinds: Sequence[str] = (), session: str | None = None, name: str = "", limit: int | None = None
    ) -> Stream:
        """Every such event from this very moment on, to be read."""
        most = self.limit if limit is None else limit
        return self._enter(Stream(self.loop, name or "a stream", kinds, session, most, self.left, self.give_up))

    def subscribe_with(
        self,
        snapshot: Callable[[], T],
        *,
        kinds: Sequence[str] = (),
        session: str | None = None,
        name: str = "",
        limit: int | None = None,
    ) -> tuple[T, Stream]:
        """How things are, and all that comes after, with no gap between and nothing twice (H36)."""
        taken = snapshot()
        return taken, self.stream(kinds=kinds, session=session, name=name, limit=limit)

    def respond(self, kind: str, responder: Responder, *, name: str = "", scope: Scope | None = None) -> Subscription:
        """Run the responder for every event of that kind, each in a task of its own; what it returns is emitted."""
        called = name or getattr(responder, "__qualname__", None) or type(responder).__qualname__
        return self._enter(Responding(self, responder, called, kind, self._scope if scope is None else scope))

    # -- asking

    async def request(self, event: Event, *, timeout: float | None = None) -> Event:  # noqa: ASYNC109  says what it waited for
        """Publish a request and give the event that ends it. TimeoutError when none comes in time."""
        answer = self.waiter(event.seq, OPENERS.get(event.kind, ()))
        try:
            self.publish(event)
            if timeout is None:
                return await answer.wait()
            try:
                async with asyncio.timeout(timeout):
                    return await answer.wait()
            except TimeoutError:
                raise TimeoutError(f"nobody answered {kind_of(event)} within {timeout:g} s") from None
        finally:
            self.forget(event.seq)

    def waiter(self, seq: int, kinds: Sequence[str] = ()) -> Fact[Event]:
        """The first event of these kinds, or of any, that names this request. There is one waiter for each."""
        if self.closed:
            raise BusClosedError(f"the bus is closed: nobody would answer request {seq}")
        if seq <= 0 or seq in self._waiters:
            raise UsageError(f"request {seq} is waited for already" if seq > 0 else "a request has a seq above 0")
        answer: Fact[Event] = Fact(self.loop)
        self._waiters[seq] = (kinds, answer)
        return answer

    def forget(self, seq: int) -> None:
        """Nobody waits for the answer any more."""
        self._waiters.pop(seq, None)

    # -- the end

    async def drained(self) -> None:
        """Until no handler has anything waiting or running. Not for handlers, which would wait for themselves."""
        if any(one.workers for one in self._handlings()):
            if self._drained is None:
                self._drained = Fact(self.loop)
            await self._drained.wait()

    def close(self) -> None:
        """Refuse what comes, drop what waits for handlers with one record, end streams, fail waiters. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._routes.clear()
        dropped: Counter[str] = Counter()
        for one in [*self._general, *(each for some in self._particular.values() for each in some)]:
            if isinstance(one, Handling):
                dropped += one.undelivered()
            if isinstance(one, Stream):
                one.end()
            else:
                one.close()
        if dropped:
            kinds = ", ".join(f"{kind} ×{count}" for kind, count in sorted(dropped.items()))
            _log.warning("the bus was closed before these were handled: %s", kinds)
        waiters, self._waiters = self._waiters, {}
        for _, answer in waiters.values():
            answer.fail(BusClosedError("the bus was closed before an answer came"))
        self.rested()

    # -- from subscriptions

    def left(self, one: Subscription) -> None:
        """It was closed."""
        among = self._general if one.session is None else self._particular.get(one.session, [])
        for place, each in enumerate(among):
            if each is one:
                del among[place]
                break
        if one.session is None:
            self._routes.clear()
        elif not among:
            self._particular.pop(one.session, None)
        self.rested()

    def give_up(self, one: Subscription, reason: str, missed: int) -> None:
        """It fell too far behind and was closed: say so, once whatever is being published is with everybody."""
        one.cut = reason
        _log.warning("the subscriber %s was cut: %s; it missed %d", one.name, reason, missed)
        self.loop.call_soon(self._say, SubscriberCut(subscriber=one.name, reason=reason, missed=missed))

    def rested(self) -> None:
        """A worker has nothing more to do."""
        if self._drained is not None and not any(one.workers for one in self._handlings()):
            self._drained.tell(None)
            self._drained = None

    def failure(self, one: Subscription, event: Event, error: BaseException, *, told: bool = True) -> None:
        """A handler or responder failed: a record and, if that is to be told, an event; none over an error (H41)."""
        kind, text = kind_of(event), said(error)
        _log.error("%s failed over %s: %s", one.name, kind, text, exc_info=error if error.__traceback__ else None)
        if told and event.kind not in OF_ERRORS:
            self._say(PluginError(plugin=one.name, call=kind, error=text, cause=event.seq))

    def hand_in(self, event: Event) -> None:
        """What a responder answered."""
        (self.emit or self.publish)(event)

    # -- inside

    def _say(self, event: Event) -> None:
        if self.emit is None:
            return
        try:
            self.emit(event)
        except Exception as error:  # noqa: BLE001  a boundary: one record, no cascade (H41)
            _log.error("%s could not be emitted: %s", event.kind, said(error))

    def _enter(self, one: S) -> S:
        if self.closed:
            raise BusClosedError(f"the bus is closed: {one.name} would hear nothing")
        if one.session is None:
            self._general.append(one)
            self._routes.clear()
        else:
            self._particular.setdefault(one.session, []).append(one)
        return one

    def _handlings(self) -> list[Handling]:
        everybody = [*self._general, *(each for some in self._particular.values() for each in some)]
        return [one for one in everybody if isinstance(one, Handling)]
