"""A responder gets each request in a task of its own, never through a queue whose worker may be waiting (H31)."""

from __future__ import annotations

import contextvars
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..errors import BusClosedError, ScopeStoppedError
from ..events import Event, kind_of
from .subscription import Subscription

if TYPE_CHECKING:
    from ..supervise.scope import Scope
    from .bus import Bus

Responder = Callable[[Event], Awaitable[Event | None]]
_log = logging.getLogger("quell")


class Responding(Subscription):
    def __init__(self, bus: Bus, responder: Responder, name: str, kind: str, scope: Scope) -> None:
        super().__init__(name, (kind,), None, bus.left)
        self._bus = bus
        self._responder = responder
        self._scope = scope
        self._context = contextvars.copy_context()

    def take(self, event: Event) -> None:
        try:
            self._context.copy().run(functools.partial(self._scope.task, self._respond(event), name=self.name))
        except ScopeStoppedError:
            self.close()

    async def _respond(self, event: Event) -> None:
        try:
            answer = await self._responder(event)
        except Exception as error:  # noqa: BLE001  a boundary: becomes plugin.error
            self._bus.failure(self, event, error)
            return
        if answer is None:
            return
        try:
            self._bus.hand_in(answer)
        except BusClosedError:
            _log.debug("%s answered %s too late: the bus is closed", self.name, kind_of(event))
        except Exception as error:  # noqa: BLE001  a boundary: the answer is nobody's any more
            self._bus.failure(self, event, error)
