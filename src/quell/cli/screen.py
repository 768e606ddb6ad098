"""What the commands show: whatever a model or tool said is made safe here, and nothing reaches a terminal elsewhere.

Escape sequences are taken out; any other control character, and what turns the direction of text, is shown by its code.
"""

from __future__ import annotations

import json
import os
import re
import select
from typing import Any

from ..errors import QuellError
from .cells import cut
from .words import complain

Part = tuple[str, str]
"""A style, which may be several words, and a text."""
Line = list[Part]

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]"  # colours, movement, modes
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"  # titles, links, the clipboard
    r"|\x1b[ -/]*[0-~]"
)
_DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSEEN = re.compile(  # spaces that are none, and what takes no room or leaves it blank: text can be hidden in those
    "[\u00a0\u00ad\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200d\u202f\u205f-\u206f\u2800\u3000\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_PARTIAL = re.compile(  # what may become one of those
    r"(?:\x1b(?:\[[0-?]*)?[ -/]*|\x9b[0-?]*[ -/]*|\r"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x80-\x9f]*\x1b?)\Z"
)
_RETURN = re.compile(r"\r|\x1b\[1?G")
_HELD = 4096  # characters that are held back for the end of a sequence
_COLOURS = {
    "red": "31", "green": "32", "yellow": "33", "cyan": "36",
    "code": "36",
    "bold": "1", "dim": "2", "italic": "3", "underline": "4", "alarm": "1;31",
}  # fmt: skip


class ReaderGone(Exception):
    """Whoever read our output does not any more. No fault: there is nothing left to say."""


def safe(text: str) -> str:
    """Text that can do nothing to a terminal but be read."""
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    return _DANGEROUS.sub(_code, _SEQUENCE.sub("", text))


def exact(text: str) -> str:
    """The same with nothing taken out: for what somebody is to decide on, all of it must be seen."""
    return _UNSEEN.sub(_code, _DANGEROUS.sub(_code, text))


def _code(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class Cleaner:
    """Text that comes in pieces, made safe as if it came at once: a sequence may be cut anywhere.

    With `returns` a return to the beginning of the line is kept, as a carriage return: what follows is instead.
    """

    def __init__(self, *, returns: bool = False) -> None:
        self._returns = returns
        self._held = ""

    def take(self, text: str) -> str:
        """What can be shown by now."""
        text = self._held + text
        begun = _PARTIAL.search(text)
        whole = len(text) if begun is None or len(text) - begun.start() > _HELD else begun.start()
        self._held = text[whole:]
        return self._safe(text[:whole])

    @property
    def holds(self) -> bool:
        """Whether something is held back, since it may be the beginning of a sequence."""
        return bool(self._held)

    def end(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return self._safe(held)

    def _safe(self, text: str) -> str:
        if not self._returns:
            return safe(text)
        return "\r".join(safe(one) for one in _RETURN.split(text.replace("\r\n", "\n")))


def one_line(text: str, longest: int = 0) -> str:
    """The same on one line, and no wider than that."""
    words = " ".join(safe(text).split())
    return cut(words, longest) if longest else words


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
        """Of the terminal that this is on, and not of standard output's."""
        try:
            columns = int(os.environ.get("COLUMNS", "0"))
        except ValueError:
            columns = 0
        if columns <= 0:
            try:
                columns = os.get_terminal_size(self._fd).columns
            except OSError:
                columns = 0
        return max(20, columns or 80)

    def line(self, *parts: Part | str) -> None:
        self.write(*parts, "\n")

    def write(self, *parts: Part | str) -> None:
        """Everything in it is made safe."""
        self._put("".join(self.painted(*(("", part) if isinstance(part, str) else part)) for part in parts))

    def lines(self, lines: list[Line]) -> None:
        for line in lines:
            self.line(*line)

    def json(self, value: Any, indent: int | None = None) -> None:
        """In ASCII: control characters beyond it would reach the terminal as they are."""
        self._put(json.dumps(value, indent=indent) + "\n")

    def painted(self, style: str, text: str) -> str:
        text = safe(text)
        if not (style and text.strip("\n") and self.colour):
            return text
        return f"\x1b[{';'.join(_COLOURS[word] for word in style.split())}m{text}\x1b[0m"

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
