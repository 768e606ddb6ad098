"""What a process can own, kind by kind, and how each is told from others: never by a number that is used again.

Things come and go while they are listed; what is gone is left out.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import sys
import termios
import threading
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ..supervise.where import where_thread
from . import pending
from .notes import FOR_GOOD, RUNNERS_OWN, Notes, Origin, Real, of_frame

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator


class Thing(ABC):
    """One thing that this process owns. `key` is its identity among those of its kind."""

    kind: ClassVar[str]
    key: Hashable

    @property
    @abstractmethod
    def what(self) -> str:
        """The thing in words, as it is now."""

    @abstractmethod
    def origin(self, notes: Notes) -> Origin | None:
        """Where it was made."""

    def is_ours(self, notes: Notes | None) -> bool:
        """Whether the code between two looks answers for it, not a test runner or another process."""
        return notes is None or self.origin(notes) not in (RUNNERS_OWN, FOR_GOOD)

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


# -- tasks and threads


class Task(Thing):
    kind = "task"

    def __init__(self, task: pending.AnyTask) -> None:
        self.key = self._task = weakref.ref(task)
        self.ident = id(task)
        self._made = pending.made(task)

    @property
    def task(self) -> pending.AnyTask | None:
        return self._task()

    @property
    def never_ends(self) -> bool:
        """Whether no loop is there to run it."""
        task = self.task
        return task is not None and task.get_loop().is_closed()

    @property
    def what(self) -> str:
        task = self.task
        if task is None:
            return "that is gone"
        never = ", in a loop that is closed" if self.never_ends else ""
        return f"{pending.label(task)} waiting at {pending.stands(task)}{never}"

    def origin(self, notes: Notes) -> Origin | None:
        return self._made


def tasks() -> Iterator[Thing]:
    yield from map(Task, pending.pending_tasks())


class Thread(Thing):
    kind = "thread"

    def __init__(self, ident: int | None, thread: threading.Thread | None) -> None:
        self.ident = ident
        self._thread = None if thread is None else weakref.ref(thread)
        self.key = ident if thread is None else weakref.ref(thread)

    @property
    def what(self) -> str:
        thread = self._thread() if self._thread is not None else None
        name = repr(thread.name) if thread is not None else "without a name"
        at = of_frame(sys._current_frames().get(self.ident or 0))
        return f"{name} ({self.ident}) at {at.made if at is not None else where_thread(self.ident)}"

    def origin(self, notes: Notes) -> Origin | None:
        if self._thread is None:
            return notes.bare_threads.get(self.ident or 0)
        thread = self._thread()
        return notes.threads.get(thread) if thread is not None else None


def threads() -> Iterator[Thing]:
    """Those that run Python."""
    idents = set(sys._current_frames())
    for thread in threading.enumerate():
        idents.discard(thread.ident or 0)
        yield Thread(thread.ident, thread)
    yield from (Thread(ident, None) for ident in idents)


# -- descriptors


class Descriptor(Thing):
    kind = "fd"

    def __init__(self, number: int, target: str) -> None:
        self.number = number
        self.target = target
        self.key = number, target.removesuffix(" (deleted)")

    @property
    def what(self) -> str:
        return f"{self.number} of {self.target}"

    def origin(self, notes: Notes) -> Origin | None:
        return notes.of_descriptor(self.number, self.target)

    def is_ours(self, notes: Notes | None) -> bool:
        return super().is_ours(notes) and not (self.target.startswith("pipe:") and self._is_libuv_lock(notes))

    def _is_libuv_lock(self, notes: Notes | None) -> bool:
        """The first loop of libuv makes a pipe for the whole process: both ends are here, with one byte in between."""
        if "uvloop" not in sys.modules or (notes is not None and self.origin(notes) is not None):
            return False
        try:
            waiting = fcntl.ioctl(self.number, termios.FIONREAD, bytes(4))
        except OSError:
            return False
        ends = [one for one in descriptors() if one.target == self.target]
        return int.from_bytes(waiting, sys.byteorder) == 1 and len(ends) == 2


class Socket(Descriptor):
    kind = "socket"

    @property
    def what(self) -> str:
        try:
            number = Real.dup(self.number)
        except OSError:
            return f"{super().what}, gone"
        try:
            copy = socket.socket(fileno=number)
        except OSError:  # the number leads to something else by now
            Real.close(number)
            return f"{super().what}, gone"
        with copy:
            return f"{super().what}, {_family(copy)}{_addresses(copy)}"


def _family(one: socket.socket) -> str:
    return " ".join(getattr(of, "name", str(of)) for of in (one.family, one.type))


def _addresses(one: socket.socket) -> str:
    local = peer = ""
    try:
        local = _address(one.getsockname())
        if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return f", listening on {local}"
        peer = _address(one.getpeername())
    except OSError:  # it has no peer
        return f", {local}, not connected"
    return f", {local} to {peer}"


def _address(address: Any) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    if isinstance(address, bytes):
        return "@" + address.lstrip(b"\0").decode(errors="replace")
    return str(address) or "no name"


def descriptors() -> Iterator[Descriptor]:
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the listing's own, or one that another thread closed
            continue
        yield (Socket if target.startswith("socket:") else Descriptor)(int(number), target)


# -- temporary files


class Temporary(Thing):
    kind = "temp"

    def __init__(self, path: str, inode: int) -> None:
        self.path = path
        self.key = path, inode

    @property
    def what(self) -> str:
        try:
            mode = os.lstat(self.path).st_mode
        except OSError:
            return f"{self.path}, gone"
        return f"{_KINDS_OF_FILE.get(stat.S_IFMT(mode), 'entry')} {self.path}"

    def origin(self, notes: Notes) -> Origin | None:
        return notes.paths.get(self.path)

    def is_ours(self, notes: Notes | None) -> bool:
        """In a folder that all may write to, only what this process was seen to make, if it was watched."""
        try:
            shared = os.stat(os.path.dirname(self.path)).st_mode & stat.S_IWOTH
            if shared and notes is None:
                return os.lstat(self.path).st_uid == os.geteuid()
            return super().is_ours(notes) and (not shared or notes is None or self.path in notes.paths)
        except OSError:
            return False


_KINDS_OF_FILE = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "fifo",
    stat.S_IFLNK: "link",
}


def temporaries(folder: str) -> list[Thing]:
    try:
        with os.scandir(folder) as entries:
            return [Temporary(entry.path, entry.inode()) for entry in entries]
    except FileNotFoundError:  # the folder itself was temporary
        return []
