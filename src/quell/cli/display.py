"""Events as a person at a terminal sees them: the answer on stdout as it comes, all else on stderr, tidily.

A pipe or a file gets each answer when it is whole: what a model said before it broke off cannot be taken back there.

Whatever a model or tool says is made safe; what stands on the last line for a moment is gone before anything is said.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..events import (
    Event,
    MessageDelta,
    MessageDone,
    ModelAnswered,
    ModelDelta,
    ModelRequested,
    ModelRestarted,
    PluginError,
    ProcessEnded,
    ProcessSpawned,
    RuntimeErrored,
    SessionCompacted,
    SessionOpened,
    StopReceipt,
    ToolEnded,
    ToolOutput,
    ToolRefused,
    ToolRequested,
    ToolStarted,
    TurnEnded,
    Usage,
)
from .markdown import Markdown
from .said import Said
from .screen import Cleaner, Line, one_line, safe
from .status import Status
from .toolview import Calls
from .wrapping import Plain, Wrap, folded

if TYPE_CHECKING:
    from .outlet import Outlet

INDENT = "  "
_OWN = ("", "Ctrl+C", "/stop")
"""Reasons of a stop that whoever sees it need not be told."""
_ENDS = {"failed": "failed", "limit": "met a limit", "interrupted": "was interrupted"}


def fancy() -> bool:
    """Whether the locale has more than ASCII; as we were started, since Python may have put LC_CTYPE into its copy."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = dict(one.partition(b"=")[::2] for one in file.read().split(b"\0"))
    except OSError:
        pairs = dict(os.environb)
    said = next((pairs[name] for name in (b"LC_ALL", b"LC_CTYPE", b"LANG") if pairs.get(name)), b"")
    return said.upper().replace(b"-", b"").endswith(b"UTF8")


class Display:
    """`take` each event of a session and of its sub-agents; `flush` writes what there is to show."""

    def __init__(self, outlet: Outlet, *, answers: bool = True) -> None:
        self.outlet = outlet
        self.out = outlet.screen(1)
        self.aside = outlet.screen(2)
        self.fancy = fancy()
        self.status = Status(self)
        self._answers = answers
        self._footer: Line | None = None
        self._footer_shown = False
        self._markdown: Markdown | Plain = (
            Markdown(width=lambda: self.out.width, fancy=self.fancy) if self.out.colour else Plain()
        )
        self._wrap = Wrap(lambda: self.out.width)
        self._thoughts = Wrap(lambda: self.aside.width)
        self._clean = Cleaner()
        self._said = Said()
        self._open = 0  # the descriptor of a line that has no end yet
        self._children: dict[str, tuple[int, Cleaner, list[str]]] = {}  # depth, and the line that it is saying
        self._summaries: set[int] = set()
        self._calls = Calls(self.lines, self.aside, self.fancy)

    # -- for whoever shows something

    async def flush(self) -> None:
        self.draw_footer()
        await self.outlet.flush()

    def ask(self, footer: Line | None) -> None:
        """What stays on the last line, below whatever else is said, until it is something else or nothing."""
        self._hide_footer()
        self._footer = footer

    def draw_footer(self) -> None:
        if self._footer is not None and not self._footer_shown:
            self.break_line()
            self.aside.write(*self._footer)
            self._footer_shown = True

    def redraw_footer(self) -> None:
        """After the terminal was somebody else's."""
        self._footer_shown = False
        self.draw_footer()

    def _hide_footer(self) -> None:
        if self._footer_shown:
            self._footer_shown = False
            if self.aside.moves:
                self.aside.control("\r\x1b[K")
            else:
                self.aside.write("\n")

    def lines(self, lines: list[Line], depth: int = 0, hang: int = 0) -> None:
        """On stderr, each on a line of its own; on a terminal broken between words, the rest of it moved in by that."""
        if lines:
            self.break_line()
        room = self.aside.width - len(INDENT) * depth if self.aside.terminal else 0
        for line in lines:
            for one in folded(line, room, hang) if room > 0 else [line]:
                self.aside.line(("", INDENT * depth), *one)

    def line(self, style: str, text: str, depth: int = 0) -> None:
        self.lines([[(style, text)]], depth)

    @property
    def tip(self) -> str:
        """The latest line of a call that runs, where its lines are not shown any more or it has no end yet."""
        return self._calls.tip

    def break_line(self) -> None:
        """What is said next begins on a line of its own."""
        self._clear()
        over = False
        if self._open == 1:
            self._speak(rest := self._clean.end())
            over = rest.endswith("\n") and not self._markdown.holds
            self.out.write(*self._wrap.take(self._markdown.end()), *self._wrap.end())
        elif self._open == 2:
            self.aside.write(*self._thoughts.end())
        if self._open and not over:
            (self.out if self._open == 1 else self.aside).write("\n")
        self._open = 0

    def rest(self) -> None:
        """Nothing was said for a moment: the word that was held back, as it may not have its end yet, is shown."""
        self.out.write(*self._wrap.rest())
        self.aside.write(*self._thoughts.rest())

    def _clear(self) -> None:
        """What stands on the last line for a moment goes."""
        self.status.clear()
        self._hide_footer()

    def interrupted(self) -> None:
        """The terminal has shown `^C` where the cursor is."""
        if self._open or not self.aside.moves:
            self.break_line()
        else:
            self._clear()
            self.aside.control("\r\x1b[K")

    @property
    def line_is_open(self) -> bool:
        return bool(self._open) and (self._open == 2 or self.out.terminal)

    # -- events

    def take(self, event: Event) -> None:
        self.status.hear(event)
        depth, _, _ = self._children.get(event.session, (0, None, None))
        if depth:
            self._child(event, depth)
        else:
            self._own(event)
        self._common(event, depth)

    def _own(self, event: Event) -> None:
        match event:
            case ModelRequested():
                self.break_line()
                self._markdown.end()
                self._said.begin()
                if event.purpose == "compact":
                    self._summaries.add(event.seq)
            case MessageDelta():
                self._answer(event.text)
            case MessageDone():
                if not self._said.ends_with(event.text):
                    self._answer(event.text)
                self._tell()
                self.break_line()
            case ModelAnswered() | ToolRequested() | TurnEnded():  # also what a stop cut short
                self._tell()
            case ModelRestarted():
                self._said.begin()
            case ModelDelta() if event.channel != "notice" and event.request not in self._summaries:
                self._think(event.text)

    def _child(self, event: Event, depth: int) -> None:
        """A sub-agent says whole lines, so that several can speak at once."""
        _, clean, held = self._children[event.session]
        if isinstance(event, MessageDelta):
            *whole, rest = ("".join(held) + clean.take(event.text)).split("\n")
            held[:] = [rest]
            self.lines([[("dim", one)] for one in whole], depth)
        elif isinstance(event, ModelRestarted):
            clean.end()
            held.clear()
        elif isinstance(event, MessageDone | ToolRequested | TurnEnded):
            rest = "".join(held) + clean.end()
            held.clear()
            self.lines([[("dim", rest)]] if rest.strip() else [], depth)

    def _common(self, event: Event, depth: int) -> None:
        match event:
            case SessionOpened() if event.parent:
                above, _, _ = self._children.get(event.parent, (0, None, None))
                self._children[event.session] = (above + 1, Cleaner(), [])
                self.line("dim", f"{'▸' if self.fancy else '>'} sub-agent {event.agent}", above + 1)
            case ModelDelta() if event.channel == "notice":
                self.line("dim yellow", one_line(event.text, 500), depth)
            case ModelRestarted():
                self.line("dim yellow", one_line(event.reason, 500), depth)
            case ModelAnswered():
                self._calls.several(event.session, len(event.calls))
            case SessionCompacted():
                self.line("dim", "the conversation was summed up, as it had become too long", depth)
            case (
                ToolRequested() | ToolStarted() | ToolOutput() | ToolEnded() | ToolRefused()
                | ProcessSpawned() | ProcessEnded()
            ):  # fmt: skip
                self._calls.take(event, depth)
            case PluginError():
                self.line("red", one_line(f"{event.plugin}, {event.call}: {event.error}", 2000))
            case RuntimeErrored():
                self.line("red", one_line(f"{event.where}: {event.error}", 2000))

    def _answer(self, text: str) -> None:
        if not self._answers or not text:
            return
        self._said.add(text)
        if self.out.terminal:
            self._tell()

    def _tell(self) -> None:
        text = self._said.rest()
        if not text:
            return
        if self._open == 2:
            self.break_line()
        self._clear()
        self._speak(self._clean.take(text))
        self._open = 0 if text.endswith("\n") and not (self._clean.holds or self._markdown.holds) else 1

    def _speak(self, text: str) -> None:
        """To a pipe as it was said."""
        self.out.write(*(self._wrap.take(self._markdown.take(text)) if self.out.terminal else [text]))

    def _think(self, text: str) -> None:
        if not self._answers or not text:
            return
        if self._open == 1:
            self.break_line()
        self._clear()
        thought = "dim italic", safe(text)
        self.aside.write(*(self._thoughts.take([thought]) if self.aside.terminal else [thought]))
        self._open = 0 if text.endswith("\n") else 2

    # -- at the end

    def ended(self, event: TurnEnded) -> None:
        """How the turn ended, if not with an answer."""
        self.break_line()
        if (how := _ENDS.get(event.end)) is not None:
            self.line("red", f"the turn {how}{f': {one_line(event.reason, 2000)}' if event.reason else ''}")

    def receipt(self, event: StopReceipt, more: str = "") -> None:
        """What a stop observed, in one line."""
        from .receipts import verdict

        style = "green" if event.confirmed else "alarm"
        reason = str(event.receipt.get("reason", ""))
        why = "" if reason in _OWN else f": {one_line(reason, 200)}"
        self.line(style, f"stopped{why}; {verdict(event.receipt, event.confirmed)}{more}")

    def summary(self, usage: Usage, steps: int, seconds: float, more: str = "") -> None:
        """What it took, on the last line."""
        dot = " · " if self.fancy else ", "
        cached = f" ({usage.cached:,} cached)" if usage.cached else ""
        facts = [f"{usage.input:,} {'token' if usage.input == 1 else 'tokens'} in{cached}, {usage.output:,} out"]
        facts += [f"${usage.cost:.4f}"] if usage.cost else []
        facts += [f"{steps} steps" if steps != 1 else "1 step", f"{seconds:.1f} s", *([more] if more else [])]
        lines, room = [""], self.aside.width if self.aside.terminal else 0
        for fact in facts:
            longer = f"{lines[-1]}{dot}{fact}" if lines[-1] else fact
            if room and lines[-1] and len(longer) > room:
                lines.append(fact)
            else:
                lines[-1] = longer
        self.lines([[("dim", one)] for one in lines])
