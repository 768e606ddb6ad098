"""Output above a line that is being typed: whole lines go up, what has no end yet stands over the prompt."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from .outlet import Outlet, Said

if TYPE_CHECKING:
    from prompt_toolkit.application import Application

PACE = 0.03
"""Seconds between two pieces: each takes the prompt away and draws it again."""


class Above(Outlet):
    """What a display says while the person types. `open` is the line that has no end yet, with its colours."""

    def __init__(self) -> None:
        super().__init__()
        self.application: Application[str] | None = None
        self.open = ""
        self._whole: list[str] = []
        self._wanted = asyncio.Event()
        self._over = False

    def screen(self, fd: int) -> Said:
        """Everything is on one terminal; nothing that stands there is drawn over, for that is the prompt's."""
        screen = super().screen(fd)
        screen.moves = False
        return screen

    def put(self, fd: int, data: bytes) -> None:
        whole, end, rest = (self.open + data.decode(errors="replace")).rpartition("\n")
        self.open = rest
        if end:
            self._whole.append(whole + end)
        self._wanted.set()

    def kick(self, then: Callable[[], object] | None = None) -> None:
        self._wanted.set()
        if then is not None:
            then()

    async def flush(self) -> None:
        """There is nobody to wait for: a terminal in this mode takes everything."""

    def hurry(self, seconds: float) -> None: ...

    def last(self) -> None:
        """Without the prompt: what is left."""
        text = "".join(self._whole) + (f"{self.open}\n" if self.open else "")
        self._whole.clear()
        self.open = ""
        _write(text)

    def close(self) -> None:
        self._over = True
        self._wanted.set()

    async def pump(self) -> None:
        """The work of it, until it is closed."""
        while not self._over:
            await self._wanted.wait()
            self._wanted.clear()
            text = "".join(self._whole)
            self._whole.clear()
            self._draw(text)
            await asyncio.sleep(PACE)

    def _draw(self, text: str) -> None:
        """Take the prompt away, write, and have it drawn again. The keyboard stays as it is: Ctrl+C stays a key."""
        application = self.application
        if application is None or not application.is_running:
            return _write(text)
        if text:
            application.renderer.erase()
            _write(text)
            application.renderer.request_absolute_cursor_position()
        application.invalidate()
        return None


def _write(text: str) -> None:
    data = text.encode(errors="backslashreplace")
    while data:
        try:
            data = data[os.write(1, data) :]
        except OSError:
            return  # hung up
