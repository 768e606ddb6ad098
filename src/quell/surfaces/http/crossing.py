"""One order on its way from the front's loop to the kernel's, and its answer back: taken up or given up, never both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Order(Generic[T]):
    """Made in the front's loop, carried out in the kernel's: whoever claims it first decides that it runs, or not."""

    def __init__(self, front: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[T] = front.create_future()
        self._front = front
        self._once = threading.Lock()

    def claim(self) -> bool:
        """From any thread. True for the first."""
        return self._once.acquire(blocking=False)

    def tell(self, value: T) -> None:
        self._post(self.answer.set_result, value)

    def fail(self, error: BaseException) -> None:
        self._post(self.answer.set_exception, error)

    def _post(self, settle: Callable[[Any], None], word: object) -> None:
        def said() -> None:
            if not self.answer.done():  # else whoever asked is gone, or was told that the server stops
                settle(word)

        post(self._front, said)


def post(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> bool:
    """Have a loop call this. False: it is closed."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return False
    return True
