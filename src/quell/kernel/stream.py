"""A stream gives its one reader every event from the moment that it was made, in order, and never delays anybody."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import UsageError
from .subscription import Subscription

if TYPE_CHECKING:
    from ..events import Event

    Self = TypeVar("Self", bound="Stream")


class Stream(Subscription):
    """Iterate over it, best within `async with`. It ends when it or the bus is closed, or with `cut` said."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        kinds: Sequence[str],
        session: str | None,
        limit: int,
        left: Callable[[Any], None],
        cut: Callable[[Subscription, str, int], None],
    ) -> None:
        super().__init__(name, kinds, session, left)
        self._loop = loop
        self._limit = limit
        self._give_up = cut
        self._queue: deque[Event] = deque()
        self._reader: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """How many wait to be read."""
        return len(self._queue)

    def __bool__(self) -> bool:
        return True

    def take(self, event: Event) -> None:
        if self.closed:
            return
        if len(self._queue) >= self._limit:
            self.end()  # what it has can still be read
            self._give_up(self, f"more than {self._limit} events waited to be read", 1)
            return
        self._queue.append(event)
        self._wake()

    def end(self) -> None:
        """Nothing more comes; what waits can still be read."""
        super().close()
        self._wake()

    def close(self) -> None:
        self._queue.clear()
        self.end()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self: Self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._queue:
            if self.closed:
                raise StopAsyncIteration
            if self._reader is not None:
                raise UsageError(f"the stream {self.name} has a reader already: make one stream for each")
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._queue.popleft()  # after the last await: a cancelled reader has lost nothing

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
