"""The line of `quell chat`: which keys do what, what it remembers, and how it looks.

Ctrl+C stays a signal while a line is typed, so it is heard even when the event loop is blocked.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import termios
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import History
from prompt_toolkit.input.vt100 import Vt100Input, raw_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

REMEMBERED = 1000
"""Lines of the history; of a file with twice as many the older ones go."""
LONGEST = 10_000
"""Characters of a line that is remembered: what is longer was pasted."""
_TAB = 8
_TOKENS = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)
_RESET = "\x1b[0m"


def bindings(
    entered: Callable[[str], None], interrupted: Callable[[], None], suspend: Callable[[], None]
) -> KeyBindings:
    """Enter sends, Alt+Enter begins a new line, Ctrl+Z suspends; the rest is as in any shell."""
    keys = KeyBindings()
    on_the_line = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=on_the_line)
    @keys.add("c-j", filter=on_the_line)  # what Enter is where it was typed before there was a line
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text
        if text.strip():
            buffer.append_to_history()
        buffer.reset()
        entered(text)

    @keys.add("escape", "enter", filter=on_the_line)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")  # where the terminal was told that another key interrupts
    def _(event: KeyPressEvent) -> None:
        interrupted()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        run_in_terminal(suspend)

    return keys


class Keyboard(Vt100Input):
    """The terminal that we have. `give_back` makes it at once what it was when this was made."""

    def __init__(self) -> None:
        super().__init__(sys.stdin)
        self._found = termios.tcgetattr(self.fileno())

    def raw_mode(self) -> AbstractContextManager[None]:
        return _keys_but_ctrl_c(self.fileno())

    def give_back(self) -> None:
        """From any thread. What was asked of the terminal itself, such as to mark what is pasted, is taken back too."""
        try:
            os.write(1, b"\x1b[?2004l\x1b[0m\x1b[?25h\r\n\x1b[J")
            termios.tcsetattr(self.fileno(), termios.TCSANOW, self._found)
        except (OSError, termios.error):
            return  # hung up

    def suspend(self) -> None:
        """As Ctrl+Z does it: the shell gets the terminal as it was."""
        termios.tcsetattr(self.fileno(), termios.TCSANOW, self._found)
        os.kill(0, signal.SIGTSTP)


class _keys_but_ctrl_c(raw_mode):
    """Each key is ours as it is pressed, but for the one that interrupts."""

    def __enter__(self) -> None:
        super().__enter__()
        try:
            modes = termios.tcgetattr(self.fileno)
            modes[3] |= termios.ISIG | termios.NOFLSH  # what was typed ahead stays
            for key in (termios.VSUSP, termios.VQUIT):
                modes[6][key] = bytes([os.fpathconf(self.fileno, "PC_VDISABLE")])
            termios.tcsetattr(self.fileno, termios.TCSANOW, modes)
        except (OSError, termios.error):
            return  # hung up: that is seen when it is read


class Remembered(History):
    """What was typed before, in a file that only this user may read; in memory where that cannot be.

    Secrets that are known are masked there, and what `skip` says is not kept at all.
    """

    def __init__(self, path: str, redact: Callable[[str], str], skip: Callable[[str], bool]) -> None:
        super().__init__()
        self._path = path
        self._redact = redact
        self._skip = skip

    def append_string(self, string: str) -> None:
        if self._skip(string) or len(string) > LONGEST or string == next(iter(self._loaded_strings), None):
            return
        super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        """The newest first. What is no line of ours is passed over."""
        try:
            with open(self._opened(os.O_RDONLY), encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
        except OSError:
            return []
        if len(lines) > 2 * REMEMBERED:
            self._write("".join(lines[-REMEMBERED:]), os.O_TRUNC)
        return [text for line in reversed(lines[-REMEMBERED:]) if (text := _read(line))]

    def store_string(self, string: str) -> None:
        self._write(json.dumps(self._redact(string)) + "\n", os.O_APPEND)  # in ASCII: any character can be written

    def _opened(self, how: int) -> int:
        return os.open(self._path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)

    def _write(self, text: str, how: int) -> None:
        try:
            with open(self._opened(os.O_WRONLY | os.O_CREAT | how), "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(text)
        except OSError:
            return  # a history that cannot be kept holds nobody up


def _read(line: str) -> str:
    try:
        text = json.loads(line)
    except ValueError:
        return ""
    return text if isinstance(text, str) else ""


def stop_search(app: Application[str]) -> bool:
    """Whether somebody was searching what was typed before, and is not any more."""
    if not app.layout.is_searching:
        return False
    app.layout.search_links.clear()
    app.layout.focus(DEFAULT_BUFFER)
    return True


def style(colour: bool) -> Style:
    return Style.from_dict({"bottom-toolbar": "noreverse ansibrightblack" if colour else "noreverse"})


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
