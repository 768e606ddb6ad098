"""Output above a line that is being typed: whole lines go up, what has no end yet stands over the prompt.

However long a line without an end becomes, drawing it stays cheap, and all of it is seen.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.utils import get_cwidth

from .outlet import Outlet, Said

if TYPE_CHECKING:
    from prompt_toolkit.application import Application

PACE = 0.03
"""Seconds between two pieces: each takes the prompt away and draws it again."""
TALLEST = 8
"""Rows of what is being said that stand over the prompt, at most; what is more goes up before it has its end."""

_TAB = 8
_TOKENS = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)
_RESET = "\x1b[0m"


class Above(Outlet):
    """What a display says while the person types. `open` is the line that has no end yet, with its colours."""

    def __init__(self) -> None:
        super().__init__()
        self.application: Application[str] | None = None
        self.open = ""
        self._whole: list[str] = []
        self._wanted = asyncio.Event()
        self._over = False
        self._width: Callable[[], int] = lambda: 80

    def screen(self, fd: int) -> Said:
        """Everything is on one terminal; nothing that stands there is drawn over, for that is the prompt's."""
        screen = Spoken(self, fd)
        screen.moves = False
        self._width = lambda: screen.width
        return screen

    def put(self, fd: int, data: bytes) -> None:
        whole, end, self.open = (self.open + data.decode(errors="replace")).rpartition("\n")
        if end:
            self._whole.append(whole + end)
        width = self._width()
        if len(self.open) > TALLEST * width:
            *broken, last = rows(self.open, width)
            if len(broken) >= TALLEST:
                self._whole += [f"{one}\n" for one in broken]
                self.open = last
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
        _write(self._taken() + (f"{self.open}\n" if self.open else ""))
        self.open = ""

    def close(self) -> None:
        self._over = True
        self._wanted.set()

    async def pump(self) -> None:
        """The work of it, until it is closed."""
        while not self._over:
            await self._wanted.wait()
            self._wanted.clear()
            self._draw()
            await asyncio.sleep(PACE)

    def _draw(self) -> None:
        """Take the prompt away, write, and have it drawn again. The keyboard stays as it is."""
        application = self.application
        if application is None or not application.is_running:
            _write(self._taken())
        elif not application.is_done:  # else it waits until the line is gone
            if self._whole:
                application.renderer.erase()
                _write(self._taken())
                application.renderer.request_absolute_cursor_position()
            application.invalidate()

    def _taken(self) -> str:
        text = "".join(self._whole)
        self._whole.clear()
        return text


class Spoken(Said):
    """A screen whose every line has its colours in itself: a prompt may come between two."""

    def painted(self, style: str, text: str) -> str:
        return "\n".join(super(Spoken, self).painted(style, one) for one in text.split("\n"))


def rows(text: str, width: int) -> list[str]:
    """A coloured line, broken where the terminal would do it; each row has its colours in itself."""
    found, column, style = [""], 0, ""
    for token in _TOKENS.findall(text):
        if token[0] == "\x1b":
            style = "" if token == _RESET else token
            found[-1] += token
            continue
        shown = " " * (min(width, column + _TAB - column % _TAB) - column) if token == "\t" else token
        wide = get_cwidth(shown)
        if column + wide > width:
            found[-1] += _RESET if style else ""
            found.append(style)
            column = 0
        found[-1] += shown
        column += wide
    return found


def _write(text: str) -> None:
    data = text.encode(errors="backslashreplace")
    while data:
        try:
            data = data[os.write(1, data) :]
        except BlockingIOError:  # whoever started us shares the terminal with us and does not wait
            select.select([], [1], [])
        except OSError:
            return  # hung up
