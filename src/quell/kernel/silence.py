"""Says so when a model or tool has been silent for long: whoever waits should know that it is not the runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..errors import FencedError


class Silence:
    """One timer, moved only when it rings: what breaks the silence costs a time stamp."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, notice: Callable[[str], object], who: str
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._notice = notice
        self._who = who
        self._since = loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def broken(self) -> None:
        self._since = self._loop.time()

    def __enter__(self) -> Silence:
        self._since = self._loop.time()
        if self._seconds:
            self._timer = self._loop.call_at(self._since + self._seconds, self._look)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now, due = self._loop.time(), self._since + self._seconds
        if now >= due:
            try:
                self._notice(f"no word from {self._who} for {self._seconds:g} s")
            except FencedError:
                return  # the turn has ended without it, and nobody waits
            self._since, due = now, now + self._seconds
        self._timer = self._loop.call_at(due, self._look)
