"""A worker runs a handler over the events of one session, one after the other; a handler's end is never its own.

It goes from session to session: a subscription keeps some idle ones for a moment, as a task costs more than an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from ..events import kind_of
from .subscription import said

if TYPE_CHECKING:
    from ..events import Event
    from .handling import Handling

BATCH = 64
"""Events in a row before others get their turn: handlers that never wait would keep the loop."""
_log = logging.getLogger("quell")


class Worker:
    """`event` is what its handler works on, None between two. `since` is when the sweeper first saw it do so."""

    __slots__ = ("event", "gone", "of", "queue", "session", "since", "task", "told", "wake")

    def __init__(self, of: Handling, queue: deque[Event] | None = None) -> None:
        self.of = of
        self.queue: deque[Event] = deque() if queue is None else queue
        self.session = ""
        self.event: Event | None = None
        self.since: float | None = None
        self.told: float | None = None
        """When the sweeper asked the handler to end, because it was past its deadline."""
        self.gone = False
        """Given up: another one has its queue."""
        self.wake: asyncio.Future[None] = of.loop.create_future()
        self.task: asyncio.Task[None] = of.start(self.run())
        self.task.add_done_callback(self._ended)

    async def run(self) -> None:
        handling, queue = self.of, self.queue
        handler, done = handling.handler, handling.done
        while True:
            await self.wake
            cancelling = self.task.cancelling
            while queue:
                for _ in range(BATCH):
                    self.event = event = queue.popleft()
                    self.since = None
                    try:
                        await handler(event)
                        if done is not None and self.told is None:
                            handling.succeeded()
                    except asyncio.CancelledError:
                        if self.told is None and self.task.cancelling():
                            raise
                        if self.told is None:  # something that it waited for was cancelled: no fault, and no end (H32)
                            _log.debug("%s: cancelled within, over %s", handling.name, kind_of(event))
                    except Exception as error:  # noqa: BLE001  a boundary: becomes plugin.error
                        if self.told is None:
                            handling.failure(event, error)
                        else:
                            _log.warning("%s, asked to end over %s: %s", handling.name, kind_of(event), said(error))
                    if (self.told is not None or cancelling()) and not self._goes_on():
                        return
                    if not queue:
                        break
                else:
                    self.event = None
                    await asyncio.sleep(0)
            self.event = None
            if not handling.rest(self):
                return

    def expire(self, now: float) -> None:
        """Past its deadline: ask it to end."""
        self.told = now
        self.task.cancel("past its deadline")

    def _goes_on(self) -> bool:
        """Whether to take the next event, after a handler that was asked to end: not if a stop asks too (H32)."""
        if self.gone:
            return False
        left = self.task.cancelling() if self.told is None else self.task.uncancel()
        self.told = None
        return not left

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self.event is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            self.of.failure(self.event, error)
        self.event = None
        self.of.replace(self)
