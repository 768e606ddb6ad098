"""What all scopes of one supervisor share: the loop, the hub, the ladder, and the stops that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ScopeStoppedError
from .errand import Fact
from .hub import Hub
from .ladder import Ladder

if TYPE_CHECKING:
    from .ownership import Factory
    from .stopping import Stop


class Shared:
    def __init__(self, ladder: Ladder, contain: str) -> None:
        self.ladder = ladder
        self.contain = contain
        self.stops: set[Stop] = set()
        self.wake: Callable[[], None] = lambda: None  # tells the supervisor's thread that there is something to see to
        self.factory: Factory | None = None
        self.trusted: Callable[..., Any] | None = None  # the task factory that was last seen to hand tasks to scopes
        self.sweep: Fact[list[tuple[Any, Any]]] | None = None  # a look at all tasks that is about to be taken
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hub: Hub | None = None
        self.loop_thread = 0

    def start(self, loop: asyncio.AbstractEventLoop, hub: Hub) -> None:
        self._loop, self._hub = loop, hub

    @property
    def running(self) -> bool:
        return self._hub is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise ScopeStoppedError("the supervisor has not been started: enter it with `async with`")
        return self._loop

    @property
    def hub(self) -> Hub:
        if self._hub is None:
            raise ScopeStoppedError("the supervisor has not been started: enter it with `async with`")
        return self._hub
