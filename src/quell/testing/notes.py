"""Where things were made: of a stack, the line that a person has to look at; and the lines noted while tracking is on.

What is noted is matched by identity (an object, an inode, a start time), so that a number that is used again is not
taken for what had it before.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import sys
import sysconfig
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ..supervise.where import line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

K = TypeVar("K")
T = TypeVar("T")
Rank = Literal["own", "library", "runner", "multiprocessing", "machinery"]

NOTED = 4096
"""Paths, and processes, of which the line is remembered. The oldest is forgotten first."""

_TESTING = os.path.dirname(__file__)
_STDLIB = os.path.dirname(os.__file__)
_SCRIPTS = sysconfig.get_path("scripts")
_PACKAGES = ("/site-packages/", "/dist-packages/")
_FOR_GOOD = {"resource_tracker.py": "ensure_running", "forkserver.py": "ensure_running", "util.py": "get_temp_dir"}
"""Files of multiprocessing, with a part of the name of the function that makes something for good."""
_RUNNERS = frozenset("anyio uvloop pytest _pytest pluggy pytest_asyncio".split())
"""Packages that only run what others wrote."""


class Origin(NamedTuple):
    """The line that made a thing; and, if a library's, the first line of the project's own that led there."""

    made: str
    caller: str | None = None


RUNNERS_OWN = Origin("the code of the test runner itself")
"""Of what neither the project nor a library has asked for, such as a loop that serves several tests."""

FOR_GOOD = Origin("the first use of multiprocessing")
"""Of what the first one who needs it makes for the whole process, and nobody closes."""


class Real:
    """The calls themselves, in a class, where `Faults` neither counts them nor makes them fail."""

    open, read, close, dup = os.open, os.read, os.close, os.dup


@functools.lru_cache(maxsize=4096)
def rank(filename: str) -> Rank:
    if filename.startswith(("<frozen", _TESTING + "/", _SCRIPTS + "/")):
        return "machinery"
    for folder in _PACKAGES:
        if folder in filename:
            package = filename.rpartition(folder)[2].partition("/")[0].removesuffix(".py")
            return "runner" if package in _RUNNERS else "library"
    if filename.startswith(_STDLIB + "/multiprocessing/"):
        return "multiprocessing"
    return "machinery" if filename.startswith(_STDLIB + "/") else "own"


def _choose(steps: Iterable[tuple[str, T]], line: Callable[[T], str]) -> Origin | None:
    """Of a stack, innermost first: the first line that is not machinery, and the first that is the project's own."""
    made: str | None = None
    by_runner = False
    for filename, step in steps:
        found = rank(filename)
        if found == "multiprocessing" and _FOR_GOOD.get(os.path.basename(filename), "?") in line(step):
            return FOR_GOOD
        if found == "own":
            return Origin(made or line(step), line(step) if made else None)
        if found == "library" and made is None:
            made = line(step)
        by_runner = by_runner or found == "runner"
    if made is not None:
        return Origin(made)
    return RUNNERS_OWN if by_runner else None


def here() -> Origin | None:
    """Of the code that runs now."""
    found = _choose(_steps(sys._getframe(1)), line_of)
    if found is RUNNERS_OWN and asyncio._get_running_loop() is not None:
        return None  # it only runs the loop; who asked the loop for this, nobody knows
    return found


def of_frame(frame: FrameType | None) -> Origin | None:
    return known(_choose(_steps(frame), line_of))


def of_coroutine(coroutine: Any) -> Origin | None:
    """Of a coroutine that was made while tracking was on."""
    while coroutine is not None and not hasattr(coroutine, "cr_origin"):
        coroutine = getattr(coroutine, "coroutine", None)  # a wrapper that tells what it wraps
    steps: Iterable[tuple[str, int, str]] = getattr(coroutine, "cr_origin", None) or ()
    return known(_choose(((step[0], step) for step in steps), lambda step: f"{step[0]}:{step[1]} in {step[2]}"))


def known(origin: Origin | None) -> Origin | None:
    """An origin, if it is a line."""
    return None if origin is RUNNERS_OWN or origin is FOR_GOOD else origin


def _steps(frame: FrameType | None) -> Iterator[tuple[str, FrameType]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame
        frame = frame.f_back


@dataclass(frozen=True)
class Lost:
    """A task that nobody can find any more, or that only the end of its runner ended. `ident` tells it from others."""

    ident: int
    what: str
    origin: Origin | None


@dataclass(eq=False)
class Notes:
    """What was noted since tracking began."""

    settle: float
    """Seconds that tasks get to end by themselves when their runner closes."""
    lost: list[Lost] = field(default_factory=list)
    threads: weakref.WeakKeyDictionary[threading.Thread, Origin | None] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    bare_threads: dict[int, Origin | None] = field(default_factory=dict)
    sockets: weakref.WeakKeyDictionary[socket.socket, Origin | None] = field(default_factory=weakref.WeakKeyDictionary)
    loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, set[int]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    """The threads in which each loop has run."""
    paths: dict[str, Origin | None] = field(default_factory=dict)
    """Folders, and what appeared directly in the folder for temporary files."""
    _opened: dict[int, tuple[str, Origin | None]] = field(default_factory=dict)
    _by_name: dict[str, tuple[str, Origin | None]] = field(default_factory=dict)
    _exact: dict[int, tuple[str, Origin | None]] = field(default_factory=dict)
    _processes: dict[int, tuple[bytes, Origin | None]] = field(default_factory=dict)

    # -- noting

    def open_of(self, path: str) -> None:
        """A file is about to be opened. It will have the lowest number that is free."""
        record = path, here()
        _remember(self._by_name, os.path.basename(path), record)
        try:
            number = Real.dup(0)
            Real.close(number)
        except OSError:  # no number is free, or there is no 0
            return
        self._opened[number] = record

    def path(self, path: str) -> None:
        _remember(self.paths, path, here())

    def descriptor(self, number: int) -> None:
        """It is there. The kernel's word for what it leads to tells it from the next one under its number."""
        try:
            self._exact[number] = os.readlink(f"/proc/self/fd/{number}"), here()
        except OSError:
            return

    def loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loops.setdefault(loop, set()).add(threading.get_ident())

    def process(self, pid: int) -> None:
        _remember(self._processes, pid, (_start(pid), here()))

    # -- asking

    def of_descriptor(self, number: int, target: str) -> Origin | None:
        if target.startswith("socket:"):
            for one in list(self.sockets):
                if one.fileno() == number:
                    return self.sockets.get(one)
        exact, origin = self._exact.get(number, ("", None))
        if exact == target:
            return origin
        target = target.removesuffix(" (deleted)")
        for record in (self._opened.get(number), self._by_name.get(os.path.basename(target))):
            if record is not None and _opens(record[0], target):
                return record[1]
        return None

    def is_loop_of_this_thread(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether no other thread has ever run it."""
        return self.loops.get(loop) == {threading.get_ident()}

    def of_process(self, pid: int, group: int) -> Origin | None:
        """Or of the leader of its group: the kernel gives that number to nobody else while the group lives."""
        start, origin = self._processes.get(pid, (b"", None))
        if start and start == _start(pid):
            return origin
        return self._processes[group][1] if group != pid and group in self._processes else None


def _remember(notes: dict[K, T], key: K, note: T) -> None:
    notes.pop(key, None)
    notes[key] = note
    if len(notes) > NOTED:
        notes.pop(next(iter(notes)), None)


def _opens(path: str, target: str) -> bool:
    """Whether opening `path` can have led to `target`: by its name, through a link, or as a nameless file below it."""
    if target.startswith("/") and os.path.basename(path) == os.path.basename(target):
        return True
    return target.startswith(path.rstrip("/") + "/#") or os.path.realpath(path) == target


def _start(pid: int) -> bytes:
    """The start time of a process, as the kernel writes it; empty if it is gone."""
    return (slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split() + [b""] * 20)[19]


def slurp(path: str) -> bytes:
    """The first kilobytes of a file; nothing if it is not there."""
    try:
        fd = Real.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return Real.read(fd, 1 << 16)
    except OSError:
        return b""
    finally:
        Real.close(fd)
