"""Tool calls on a terminal: a head, its output line by line within bounds, an end; parallel ones are told apart."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ..events import (
    Event,
    ProcessEnded,
    ProcessSpawned,
    ToolEnded,
    ToolOutput,
    ToolRefused,
    ToolRequested,
    ToolStarted,
)
from .cells import cells, cut
from .screen import Cleaner, Line, Screen, exact, one_line

FIRST = 16
"""Lines of output that are shown while they come."""
LAST = 4
"""And of those beyond, at the end."""
RESULT = 5
"""Lines of a result that was not shown while it came."""
_LONGEST_LINE = 4000  # characters of output without an end of line, until that is shown as one
_LONGEST_NAME = 64  # cells
_EXIT = re.compile(r"\[(exit \d+|ended by \S+(?: \d+)?)\]\s*\Z")
_NARROW = 20  # columns that a line has at least, however deep it stands

Shown = Callable[[list[Line], int, int], None]


def words_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """What a call is about, in one line; nothing of it is made safe yet."""
    rest = dict(arguments)
    words = []
    for name in ("command", "path", "pattern", "url", "agent"):
        if isinstance(rest.get(name), str):
            words.append(rest.pop(name))
            break
    if tool == "shell" and rest.get("background") is True:
        del rest["background"]
        words.append("&")
    for name, value in rest.items():
        words.append(f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    return " ".join(words)


class Call:
    """One call, from its head to its end."""

    def __init__(self, event: ToolRequested, label: str, depth: int) -> None:
        self.tool = event.tool
        self.label = label
        self.depth = depth
        self.began = 0.0  # it may wait for leave first
        self.exit = ""
        self.shown = 0  # lines
        self.left_out = 0
        self.last: deque[str] = deque(maxlen=LAST)
        self.raw = 0  # characters that came as output
        self.clean = Cleaner(returns=True)
        self.held = ""

    @property
    def tip(self) -> str:
        """What it said last, where that does not stand there."""
        return self.held or (self.last[-1] if self.last else "")


class Calls:
    """Of a session and its sub-agents, those that run."""

    def __init__(self, show: Shown, screen: Screen, fancy: bool) -> None:
        self._show = show
        self._screen = screen
        self._head, self._bar, self._foot, self._dot, self._more = (
            ("▸", "│", "└", "·", "…") if fancy else (">", "|", "`", "-", "...")
        )  # fmt: skip
        self._calls: dict[int, Call] = {}
        self._processes: dict[int, int] = {}
        self._labels: dict[str, int] = {}

    @property
    def tip(self) -> str:
        """Of the latest call that has one."""
        for one in reversed(self._calls.values()):
            if one.tip.strip():
                return f"{self._more} {one.tip}" if one.last else one.tip
        return ""

    def several(self, session: str, number: int) -> None:
        """The model wants so many at once: from two on they have labels."""
        self._labels[session] = 1 if number > 1 else 0

    def take(self, event: Event, depth: int) -> None:
        match event:
            case ToolRequested():
                self._begin(event, depth)
            case ToolStarted():
                if (call := self._calls.get(event.request)) is not None:
                    call.began = event.at
            case ToolOutput():
                if (call := self._calls.get(event.request)) is not None:
                    self._output(call, event)
            case ToolEnded() | ToolRefused():
                if (call := self._calls.pop(event.request, None)) is not None:
                    self._end(call, event)
            case ProcessSpawned() if not event.background and event.cause in self._calls:
                self._processes[event.seq] = event.cause
            case ProcessEnded():
                call = self._calls.get(self._processes.pop(event.cause, 0))
                if call is not None:
                    call.exit = event.end

    def _begin(self, event: ToolRequested, depth: int) -> None:
        number = self._labels.get(event.session, 0)
        label = f"{number} " if number else ""
        if number:
            self._labels[event.session] = number + 1
        call = self._calls[event.seq] = Call(event, label, depth)
        tool = one_line(exact(event.tool), _LONGEST_NAME)  # whatever a model made up
        room = self._room(call, cells(tool) + 4)
        words = one_line(exact(words_of(event.tool, event.arguments)), room)
        line: Line = [("cyan", f"{label}{self._head} "), ("bold", tool), ("", f"  {words}" if words else "")]
        self._show([line], depth, 0)

    def _room(self, call: Call, taken: int) -> int:
        return max(_NARROW, self._screen.width - 1 - taken - len(call.label) - 2 * call.depth)

    def _output(self, call: Call, event: ToolOutput) -> None:
        if event.channel == "notice":
            self._show([[("dim", self._margin(call)), ("dim yellow", one_line(event.text, 500))]], call.depth, 2)
            return
        call.raw += len(event.text)
        *whole, held = (call.held + call.clean.take(event.text)).split("\n")
        call.held = _last(held)
        if len(call.held) > _LONGEST_LINE:
            whole.append(call.held)
            call.held = ""
        for one in whole:
            self._line(call, one, FIRST)

    def _line(self, call: Call, text: str, most: int) -> None:
        text = _last(text)
        if call.shown < most:
            call.shown += 1
            self._put(call, text)
            return
        call.left_out += len(call.last) == LAST
        call.last.append(text)

    def _put(self, call: Call, text: str) -> None:
        text = text.expandtabs(4)
        room = self._room(call, 2)
        self._show([[("dim", self._margin(call)), ("", cut(text, room, self._more))]], call.depth, 0)

    def _margin(self, call: Call) -> str:
        return f"{call.label}{self._bar} "

    def _end(self, call: Call, event: ToolEnded | ToolRefused) -> None:
        if last := call.held + call.clean.end():
            self._line(call, last, FIRST)
        result = event.result if isinstance(event, ToolEnded) else ""
        if found := _EXIT.search(result):
            call.exit, result = found[1], result[: found.start()]
        self._rest(call, result)
        took = f" {self._dot} {max(0.0, event.at - call.began):.1f} s" if call.began else ""
        error = event.reason if isinstance(event, ToolRefused) else event.error
        style, words = self._verdict(call, event, error)
        words = one_line(words, 4 * self._screen.width)
        line: Line = [("dim", f"{call.label}{self._foot} "), (style, words), ("dim", took)]
        self._show([line], call.depth, len(call.label) + 2)

    def _verdict(self, call: Call, event: ToolEnded | ToolRefused, error: str) -> tuple[str, str]:
        if error.startswith("stopped"):
            return "yellow", "stopped"
        if isinstance(event, ToolRefused):
            return "yellow", f"refused: {error}"
        if error:
            return "red", f"failed: {error}"
        return "dim" if call.exit in ("", "exit 0") else "yellow", call.exit or "done"

    def _rest(self, call: Call, result: str) -> None:
        """What was left out, the last of it, and what the result says beyond the output."""
        if call.raw:
            beyond = [one for one in result[call.raw :].splitlines() if one.startswith("[")]  # the tool's own remarks
        else:
            if call.tool == "agent":
                return  # its sub-agent has said it
            clean = Cleaner()
            beyond = (clean.take(result) + clean.end()).splitlines()
            for one in beyond[:RESULT]:
                self._put(call, one)
            if len(beyond) > RESULT:
                self._put(call, f"{self._more} {len(beyond) - RESULT} more lines")
            return
        if call.left_out:
            self._put(
                call, f"{self._more} {call.left_out} {'line' if call.left_out == 1 else 'lines'} left out {self._more}"
            )
        for one in (*call.last, *beyond):
            self._put(call, one)


def _last(line: str) -> str:
    """What is left of a line that was written over, as progress is."""
    return line.rstrip("\r").rpartition("\r")[2]
