"""What `quell run` is told: the words of the command line, what is piped in, or both."""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable

from ..errors import UsageError
from .words import complain

PATIENCE = 3.0
"""Seconds that standard input is waited for, until that is said."""
LARGEST = 10_000_000
"""Bytes of it: far more than any model reads at once."""


def message(words: list[str], go_on: Callable[[], None]) -> str:
    """What to do. UsageError if that is nothing."""
    text = " ".join(words)
    if text == "-":
        text = read_input(go_on)
    elif is_piped():
        more = read_input(go_on)
        text = f"{text}\n\n{more}" if text.strip() and more.strip() else text if text.strip() else more
    if not text.strip():
        raise UsageError('there is nothing to do: say it, as in quell run "say hello"; see quell run --help')
    return text


def is_piped() -> bool:
    """Whether somebody feeds us: a pipe, a file, a socket; neither a terminal nor /dev/null."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def read_input(go_on: Callable[[], None]) -> str:
    """All of standard input. Somebody who asks to end meanwhile is heard."""
    data, began, told = bytearray(), time.monotonic(), os.isatty(0)
    while True:
        go_on()
        if select.select([0], [], [], 0.1)[0]:
            piece = os.read(0, 1 << 16)
            if not piece:
                return data.decode(errors="replace")
            data += piece
            if len(data) > LARGEST:
                raise UsageError(
                    f"standard input has more than {LARGEST // 1_000_000} MB: name the file in the message"
                )
        elif not told and time.monotonic() - began > PATIENCE:
            told = True
            complain("waiting for the end of standard input; </dev/null says that there is none")
