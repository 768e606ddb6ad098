"""A handler's subscription: in order per session, with a queue and a worker for each, so that a slow one delays nobody.

Nothing is kept for a session that has no event waiting (H30, H39).
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ScopeStoppedError
from .subscription import Subscription, said
from .worker import Worker

if TYPE_CHECKING:
    from ..events import Event
    from ..ports import Handler
    from ..supervise.scope import Scope
    from .bus import Bus

IDLE = 64
"""Workers that are kept for the next session, for a moment."""
_log = logging.getLogger("quell")

Failed = Callable[[Subscription, BaseException], object]
Done = Callable[[Subscription], object]


class Handling(Subscription):
    def __init__(
        self,
        bus: Bus,
        handler: Handler,
        name: str,
        kinds: Sequence[str],
        session: str | None,
        scope: Scope,
        deadline: float | None,
        limit: int,
        failed: Failed | None,
        done: Done | None,
    ) -> None:
        super().__init__(name, kinds, session, bus.left)
        self.loop = bus.loop
        self.handler = handler
        self.done = done
        self.lanes: dict[str, deque[Event]] = {}
        """By session, what waits: only while something does or runs."""
        self.workers: dict[str, Worker] = {}
        self.idle: list[Worker] = []
        self.room = limit
        """Events that fit in for sure; what was handled since is counted when it is used up."""
        self._bus = bus
        self._scope = scope
        self._context = contextvars.copy_context()
        self._deadline = deadline
        self._limit = limit
        self._failed = failed
        self._unused = 0

    @property
    def deadline(self) -> float:
        """Seconds that the handler has for one event; the bus's is read when it is used."""
        return self._bus.deadline if self._deadline is None else self._deadline

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """In the context of who subscribed, not of who publishes."""
        make = functools.partial(self._scope.task, coroutine, name=f"handler {self.name}")
        return self._context.copy().run(make)

    # -- from the bus

    def take(self, event: Event) -> None:
        if self.room > 0:
            self.room -= 1
            queue = self.lanes.get(event.session)
            if queue is not None:
                queue.append(event)
            else:
                self.begin(event)
        else:
            self.full(event)

    def begin(self, event: Event) -> None:
        """The first event of a session that has none waiting."""
        try:
            worker = self._idle_one() or Worker(self)
        except ScopeStoppedError:
            self.close()
            return
        worker.queue.append(event)
        self._employ(worker, event.session)

    def full(self, event: Event) -> None:
        """No room: unless that is an old figure, it has fallen too far behind (H39)."""
        if self.closed:
            return
        waiting = self.waiting
        if waiting < self._limit:
            self.room = self._limit - waiting
            self.take(event)
        else:
            self.close()
            self._bus.give_up(self, f"more than {self._limit} events waited for its handler", waiting + 1)

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self.lanes.values())

    def close(self) -> None:
        if self.closed:
            return
        self.room = 0
        for queue in self.lanes.values():
            queue.clear()
        for worker in self.idle:
            self._let_go(worker)
        self.idle.clear()
        super().close()

    def undelivered(self) -> Counter[str]:
        return Counter(event.kind for queue in self.lanes.values() for event in queue)

    # -- from workers and the sweeper

    def rest(self, worker: Worker) -> bool:
        """Its queue is empty. Whether to wait for more."""
        if self.workers.get(worker.session) is not worker:
            return False
        del self.workers[worker.session], self.lanes[worker.session]
        self._bus.rested()
        if self.closed or len(self.idle) >= IDLE:
            return False
        worker.wake = self.loop.create_future()
        self.idle.append(worker)
        return True

    def replace(self, worker: Worker) -> None:
        """It ended or was given up: if anything waits for it, another one goes on."""
        if worker in self.idle:
            self.idle.remove(worker)
        if self.workers.get(worker.session) is not worker:
            return
        del self.workers[worker.session]
        queue = self.lanes.pop(worker.session)
        if queue and not self.closed:
            try:
                self._employ(Worker(self, queue), worker.session)
            except ScopeStoppedError:
                self.close()
        self._bus.rested()

    def thin_out(self) -> None:
        """Let those go that were idle since the last look."""
        for worker in self.idle[: self._unused]:
            self._let_go(worker)
        del self.idle[: self._unused]
        self._unused = len(self.idle)
        if not self.workers and not self.idle:
            self.lanes, self.workers, self.idle = {}, {}, []  # a dict that was large once stays large

    def succeeded(self) -> None:
        assert self.done is not None
        try:
            self.done(self)
        except Exception as error:  # noqa: BLE001  a boundary: one record (H41)
            _log.error("after a success, what counts those of %s raised %s", self.name, said(error))

    def failure(self, event: Event, error: BaseException) -> None:
        self._bus.failure(self, event, error, told=self._failed is None)
        if self._failed is not None:
            try:
                self._failed(self, error)
            except Exception as second:  # noqa: BLE001  a boundary: one record, no cascade (H41)
                _log.error("after a failure, what counts those of %s raised %s", self.name, said(second))

    # -- inside

    def _idle_one(self) -> Worker | None:
        while self.idle:
            worker = self.idle.pop()
            self._unused = min(self._unused, len(self.idle))
            if not worker.wake.done():  # else it was cancelled, and ends
                return worker
        return None

    def _employ(self, worker: Worker, session: str) -> None:
        worker.session = session
        self.workers[session] = worker
        self.lanes[session] = worker.queue
        worker.wake.set_result(None)
        self._bus.sweeper.mind(self)

    def _let_go(self, worker: Worker) -> None:
        if not worker.wake.done():
            worker.wake.set_result(None)
