"""Inherited descriptors: which there are, and letting go of them so that only the command holds them."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_STANDARD = (0, 1, 2)


def inherited() -> list[int]:
    """The descriptors above stderr that this process was started with on purpose (`<(…)`, `3<file`)."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def fill_gaps() -> list[int]:
    """Put /dev/null where a standard stream is closed, lest a socket of ours lands there. Tells which."""
    gaps = []
    for fd in _STANDARD:
        try:
            os.fstat(fd)
        except OSError:
            null = os.open("/dev/null", os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            gaps.append(fd)
    return gaps


def close_all_but(*kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself


def let_go(fds: Iterable[int] | None, standard: Iterable[int] = _STANDARD) -> None:
    """Close these, and the standard streams too: a reader behind a pipe must see its end when the command ends."""
    if fds is None:
        return
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            continue
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for fd in standard:
        os.dup2(null, fd)
    os.close(null)
