"""The line of `quell chat`: which keys do what, what it remembers, and how it looks."""

from __future__ import annotations

import os
from collections.abc import Callable

from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

TALLEST = 10
"""Lines of what is being said that stand over the prompt; the rest comes when the line has its end."""


def bindings(interrupted: Callable[[KeyPressEvent], None]) -> KeyBindings:
    """Enter sends, Alt+Enter begins a new line, Ctrl+C is ours, Ctrl+D on an empty line leaves."""
    keys = KeyBindings()

    @keys.add("enter")
    @keys.add("c-j")  # what Enter is where it was typed before there was a prompt
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        interrupted(event)

    return keys


def history(path: str) -> History:
    """What was typed before, in a file that only this user may read; in memory where that cannot be."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def style(colour: bool) -> Style:
    return Style.from_dict({"bottom-toolbar": "noreverse ansibrightblack" if colour else "noreverse"})


def wrapped(text: str, width: int) -> list[tuple[str, str]]:
    """The end of a coloured line, broken where the terminal would: over a prompt nobody else does it."""
    lines: list[list[tuple[str, str]]] = [[]]
    column = 0
    for fragment in to_formatted_text(ANSI(text)):
        for character in fragment[1]:
            wide = get_cwidth(character)
            if column + wide > width:
                lines.append([])
                column = 0
            lines[-1].append((fragment[0], character))
            column += wide
    return [part for line in lines[-TALLEST:] for part in (*line, ("", "\n"))]
