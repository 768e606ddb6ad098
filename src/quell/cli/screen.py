"""What the commands show: whatever a model or tool said is made safe here, and nothing reaches a terminal elsewhere.

Escape sequences are taken out; any other control character, and what turns the direction of text, is shown by its code.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
from typing import Any

from ..errors import QuellError
from .words import complain

Part = tuple[str, str]
"""A style and a text."""
Line = list[Part]

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]"  # colours, movement, modes
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links, the clipboard
    r"|\x1b[ -/]*[0-~]"
)
_DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2", "alarm": "1;31"}


class ReaderGone(Exception):
    """Whoever read our output does not any more. No fault: there is nothing left to say."""


def safe(text: str) -> str:
    """Text that can do nothing to a terminal but be read."""
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    return _DANGEROUS.sub(lambda found: repr(found[0])[1:-1], _SEQUENCE.sub("", text))


def one_line(text: str, longest: int = 0) -> str:
    """The same on one line, and no longer than that."""
    words = " ".join(safe(text).split())
    return words if not longest or len(words) <= longest else words[: longest - 1] + "…"


class Screen:
    """Standard output, or standard error: coloured on a terminal, unless NO_COLOR says otherwise."""

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self.terminal = os.isatty(fd)
        self.moves = self.terminal and os.environ.get("TERM") not in (None, "dumb", "unknown")
        """Whether what stands there can be drawn over."""
        self.colour = self.moves and not os.environ.get("NO_COLOR")

    @property
    def width(self) -> int:
        return max(20, shutil.get_terminal_size().columns)

    def line(self, *parts: Part | str) -> None:
        self.write(*parts, "\n")

    def write(self, *parts: Part | str) -> None:
        """Everything in it is made safe."""
        self._put("".join(self._painted(*(("", part) if isinstance(part, str) else part)) for part in parts))

    def lines(self, lines: list[Line]) -> None:
        for line in lines:
            self.line(*line)

    def json(self, value: Any, indent: int | None = None) -> None:
        """In ASCII: control characters beyond it would reach the terminal as they are."""
        self._put(json.dumps(value, indent=indent) + "\n")

    def _painted(self, style: str, text: str) -> str:
        text = safe(text)
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if style and text.strip() and self.colour else text

    def _put(self, text: str) -> None:
        data = text.encode(errors="backslashreplace")
        try:
            while data:
                try:
                    data = data[os.write(self._fd, data) :]
                except BlockingIOError:  # whoever started us shares a pipe with us that does not wait
                    select.select([], [self._fd], [])
        except BrokenPipeError:
            raise ReaderGone from None
        except OSError as error:
            raise QuellError(f"cannot write the output: {error.strerror}") from None


def note(sentence: str) -> None:
    """For the person, beside the output."""
    complain(sentence)
