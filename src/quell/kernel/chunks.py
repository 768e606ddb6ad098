"""What a stranger streams, closed when whoever reads it goes: at once, whatever way that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """As `contextlib.aclosing`, also for an iterator that has nothing to close."""
    try:
        yield stream
    finally:
        aclose = getattr(stream, "aclose", None)
        if aclose is not None:
            await aclose()


BATCH = 64
"""Chunks in a row before others get their turn: a stream that never waits would keep the loop."""


class Pace:
    """Lets the loop turn now and then, whatever a stream does."""

    def __init__(self) -> None:
        self._count = 0

    async def step(self) -> None:
        self._count += 1
        if self._count % BATCH == 0:
            await asyncio.sleep(0)
