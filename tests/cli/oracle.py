"""What is still alive, said by the kernel and never by quell.

Two witnesses: a FIFO whose write end every process of a test inherits (the read end sees its end only when the
last holder is gone), and /proc walked from a pid that the test itself started.
"""

import os
import select
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

BOUND = 10.0
T = TypeVar("T")


def wait_for(fact: Callable[[], T], what: str, bound: float = BOUND) -> T:
    """Ask until `fact` gives something true; the error says what did not come."""
    deadline = time.monotonic() + bound
    while not (seen := fact()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {bound} s: {what}")
        time.sleep(0.01)
    return seen


class Held:
    """A FIFO that the processes of a test hold open for writing: `gone()` when none does any more."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="quell-held-")
        path = Path(self._folder.name, "fifo")
        os.mkfifo(path)
        self._read = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.write = os.open(path, os.O_WRONLY)

    def let_go(self) -> None:
        """Close the test's own write end, once the first process has inherited it."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def gone(self, bound: float = BOUND) -> bool:
        """True as soon as no process holds the write end, False when the bound has passed."""
        self.let_go()
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        deadline = time.monotonic() + bound
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(left * 1000) and not os.read(self._read, 65536):
                return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let_go()
        os.close(self._read)
        self._folder.cleanup()


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: state, ppid, pgrp, session, …; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state(pid: int) -> str:
    """The letter of the process state (R, S, T, Z, …), or '' when it is gone."""
    return (_stat(pid) or [""])[0]


def alive(pid: int) -> bool:
    return state(pid) not in ("", "Z", "X")


def in_charge(pid: int) -> bool:
    """Whether quell runs in this process by now: before, it is an interpreter that starts, and holds no signal back."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return int(status.partition("SigBlk:")[2].split()[0], 16) != 0


def argv(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def in_session(sid: int) -> list[int]:
    """The live processes of one terminal session, without zombies."""
    return [pid for pid in _pids() if (seen := _stat(pid)) and seen[3] == str(sid) and seen[0] not in "ZX"]


def below(root: int) -> list[int]:
    """All live descendants of `root`, parents before children."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        if (seen := _stat(pid)) and seen[0] not in "ZX":
            children.setdefault(int(seen[1]), []).append(pid)
    found, queue = [], [root]
    while queue:
        for child in children.get(queue.pop(0), []):
            found.append(child)
            queue.append(child)
    return found


def command_below(root: int, word: str) -> int:
    """The pid of the first descendant of `root`, quell's own processes left out, with `word` in its argv."""

    def find() -> int:
        for pid in below(root):
            if not comm(pid).startswith("quell") and any(word in part for part in argv(pid)):
                return pid
        return 0

    return wait_for(find, f"a descendant of {root} with {word!r} in its argv")
