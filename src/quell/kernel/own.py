"""What is Quell's own: a command that names its configuration, plugins or state is never allowed by a rule.

It is asked, whatever is allowed. That is a help and no wall: what a shell can be made to do has no end. Where a box has
mounts of its own, commands cannot write there anyway (`sealed` of `Scope.spawn`), and in a sandbox they do not see it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from ..config import STAR
from .patterns import LONGEST, may_fit

CHANGES = tuple(f"quell {word}{STAR}" for word in ("config", "agent", "plugin", "approve", "attach", "open"))
"""Commands of ours by which an agent would give itself leave: what is asked can be answered with the last three."""
WORDS = 1000
"""Words of a command that are looked at."""

_QUOTES = re.compile(r"['\"\\]")
_BETWEEN = re.compile(r"[\s;&|<>(){}`=:,]+")
_NAME = re.compile(r"[\w.-]")


def closed(off_limits: Iterable[str], cwd: str) -> list[str]:
    """Those that whoever works in that folder has no business in: not those that it lies in."""
    return [one for one in off_limits if not is_below(cwd, one)]


def is_named(command: str, cwd: str, own: Sequence[str]) -> bool:
    """Whether it has to do with them, as far as its words tell; of one that is too long, nobody can.

    It may take its time, or look at the disk, if `looks` says so.
    """
    if not own:
        return False
    if len(command) > LONGEST["command"]:
        return True
    if any(may_fit("command", one, command, cwd) for one in CHANGES):
        return True
    plain = _plain(command)
    return any(_has(plain, one) for one in own) or any(_leads_to(word, cwd, own) for word in _words(plain))


def looks(command: str) -> bool:
    """Whether there is more to it than words: paths that could lead through a link, homes, variables."""
    return len(command) <= LONGEST["command"] and any(sign in command for sign in "/~$")


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _has(text: str, place: str) -> bool:
    """As a whole name, or the beginning of one that leads on; a space in it is no matter."""
    at = -1
    while (at := text.find(place, at + 1)) >= 0:
        if _NAME.match(text, at + len(place)) is None:
            return True
    return False


def _plain(command: str) -> str:
    return os.path.expandvars(_QUOTES.sub("", command))


def _words(plain: str) -> list[str]:
    return list(dict.fromkeys(word for word in _BETWEEN.split(plain) if word))[:WORDS]


def _leads_to(word: str, cwd: str, own: Sequence[str]) -> bool:
    path = os.path.join(cwd, os.path.expanduser(word))
    places = {os.path.normpath(path)}
    if "/" in word:
        try:
            places.add(os.path.realpath(path))
        except (OSError, ValueError):  # a word that is no path
            pass
    return any(is_below(place, one) for place in places for one in own)
