"""What a person may ask for: anything else is refused with a sentence before anything begins."""

from __future__ import annotations

import os

from ..errors import UsageError


def is_text(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise UsageError(f"{what} is text, not {text!r}")
    return text


def is_place(number: object) -> int:
    """A place in the log: 0 is before everything."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise UsageError(f"a place in the log is the number of an event, or 0, not {number!r}")
    return number


def folder(cwd: str | os.PathLike[str]) -> str:
    """The working directory of a session: one that is there."""
    if not isinstance(cwd, str | os.PathLike):
        raise UsageError(f"a session works in a folder, not in {cwd!r}")
    try:
        path = os.path.realpath(cwd)  # a link that is turned round later leads no session elsewhere
    except ValueError:  # a NUL in it
        path = ""
    if not os.path.isdir(path):
        raise UsageError(f"{os.fspath(cwd)} is not a folder: a session needs one to work in")
    return path
