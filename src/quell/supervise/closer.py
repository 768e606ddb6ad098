"""An async context manager that a scope has entered, in one task from its first step to its last.

Entering and leaving happen in the same task, as anyio's cancel scopes demand; whoever asked for it only waits.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

from .errand import Fact


class Closer:
    def __init__(self, loop: asyncio.AbstractEventLoop, manager: AbstractAsyncContextManager[Any]) -> None:
        self.name = getattr(manager, "__qualname__", None) or _name(manager)
        self.entered: Fact[Any] = Fact(loop)
        self.task: asyncio.Task[None] | None = None  # set by the scope, which makes it
        self.error: BaseException | None = None
        self._released: Fact[None] = Fact(loop)
        self._manager = manager

    async def hold(self) -> None:
        """What its task runs. What it raises goes to the asker, or onto the receipt."""
        try:
            async with self._manager as value:
                self.entered.tell(value)
                await self._released.wait()
        except Exception as error:  # noqa: BLE001  a boundary: told to the asker, or on the receipt of the stop
            self.error = error
            self.entered.fail(error)

    def release(self) -> None:
        """Close it; what is still being entered is cancelled."""
        self._released.tell(None)
        if not self.entered.known and self.task is not None:
            self.task.cancel()


def _name(manager: AbstractAsyncContextManager[Any]) -> str:
    made_by = getattr(manager, "func", None)  # contextlib.asynccontextmanager keeps the function
    return str(getattr(made_by, "__qualname__", None) or type(manager).__qualname__)
