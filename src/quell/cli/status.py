"""What is waited for, on the last line of a terminal after a second of silence; erased before anything else is said."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ..events import (
    Event,
    ModelAnswered,
    ModelFailed,
    ModelRequested,
    ToolEnded,
    ToolOutput,
    ToolRefused,
    ToolRequested,
    TurnStarted,
)
from .screen import one_line

if TYPE_CHECKING:
    from .display import Display

QUIET = 1.0
"""Seconds without a word, until it is said what is waited for."""


class Status:
    """Of one display. Where nothing can be erased there is none."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._since = time.monotonic()
        self._shown = False
        self._waits: dict[int, str] = {}  # by request, what is waited for
        self._timer: asyncio.TimerHandle | None = None
        self.doing = "starting"
        """Where nothing else is known."""
        self.hidden = False
        """While somebody is asked something."""

    def start(self) -> None:
        if self._display.aside.moves and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(QUIET, self._tick)

    def stop(self) -> None:
        self.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def say(self, words: str) -> None:
        """From now on this is waited for, whatever else is under way."""
        self._waits.clear()
        self.doing = words
        self._since = time.monotonic()

    def hear(self, event: Event) -> None:
        if not isinstance(event, ToolOutput):  # of which not every line is shown
            self._since = time.monotonic()
        match event:
            case TurnStarted():
                self.doing = "thinking"
            case ModelRequested():
                self._waits[event.seq] = f"waiting for {event.model}"
            case ToolRequested():
                self._waits[event.seq] = f"{event.tool} runs"
            case ModelAnswered() | ModelFailed() | ToolEnded() | ToolRefused():
                self._waits.pop(event.request, None)

    def clear(self) -> None:
        if self._shown:
            self._display.aside.control("\r\x1b[K")
            self._shown = False
        self._since = time.monotonic()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(QUIET, self._tick)
        silent = time.monotonic() - self._since
        if silent < QUIET * 0.9:
            return
        if self._display.line_is_open:
            self._display.rest()
            self._display.outlet.kick()
        if self.hidden or self._display.line_is_open:
            return
        what = next(reversed(self._waits.values()), self.doing)
        more = f" and {len(self._waits) - 1} more" if len(self._waits) > 1 else ""
        dots = "…" if self._display.fancy else "..."
        dot = "·" if self._display.fancy else "-"
        tip = f" {dot} {self._display.tip}" if self._display.tip else ""
        words = one_line(f"{what}{more} {dots} {silent:.0f} s{tip}", self._display.aside.width - 1)
        self._shown = self._display.aside.now(words, "\r\x1b[K") or self._shown
