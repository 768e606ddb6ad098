"""The tally of one kind of calls in all processes that know of it: says which one is the n-th, and fails that.

Standard library only, because zygotes and keepers load it too.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

CALLS: dict[str, dict[str, int]] = {
    "spawn": dict.fromkeys(
        ("os.posix_spawn", "os.posix_spawnp", "os.fork", "os.forkpty", "_posixsubprocess.fork_exec"), errno.EAGAIN
    ),
    "pipe": dict.fromkeys(("os.pipe", "os.pipe2", "os.openpty", "_socket.socketpair"), errno.EMFILE),
    "fd": dict.fromkeys(
        (
            *("os.open", "io.open", "os.dup", "os.listdir", "os.scandir", "os.pidfd_open"),
            *("os.eventfd", "os.memfd_create", "os.timerfd_create", "libc.signalfd"),
        ),
        errno.EMFILE,
    ),
    "write": {
        **dict.fromkeys(("os.write", "os.writev", "os.pwrite", "os.pwritev", "file.write"), errno.ENOSPC),
        **dict.fromkeys(("socket.send", "socket.sendall", "socket.sendto", "socket.sendmsg"), errno.ENOBUFS),
    },
    "fsync": dict.fromkeys(("os.fsync", "os.fdatasync"), errno.EIO),
    "cgroup": {
        **dict.fromkeys(("os.mkdir", "os.open", "io.open"), errno.EPERM),
        **dict.fromkeys(("os.rmdir", "os.write", "file.write"), errno.EBUSY),
    },
    "namespace": dict.fromkeys(
        ("os.unshare", "os.setns", "libc.unshare", "libc.setns", "libc.mount", "os.open", "io.open"), errno.EPERM
    ),
}
"""By kind: each call, and the error with which the kernel would refuse it. `libc` is that of the keepers."""

_LIBRARY = os.path.dirname(os.__file__) + "/"
_RECORD = 400  # bytes of the log for each call that was counted
_ID_MAPS = ("setgroups", "uid_map", "gid_map")  # the files by which a user namespace is set up


class _Real:
    """The calls themselves. Patches look for them in modules, and leave a class alone."""

    open, read, write, lseek, close = os.open, os.read, os.write, os.lseek, os.close
    stat, readlink, getpid = os.stat, os.readlink, os.getpid


def whoami() -> tuple[int, int]:
    """This process, told from others with its number in other PID namespaces."""
    return _Real.getpid(), _Real.stat("/proc/self/ns/pid").st_ino


class Tally:
    """Every process appends to one log, and the place there is the call's number. Without the log nothing counts."""

    def __init__(
        self,
        line_of: Callable[[FrameType], str],
        *,
        kind: str,
        n: int,
        error: int | None,
        every: bool,
        within: str,
        owner: tuple[int, int],
        log: str,
    ) -> None:
        self.calls = CALLS[kind]
        self.paused = False
        self._line_of = line_of
        self._kind = kind
        self._n = n
        self._error = error
        self._every = every
        self._within = within
        self._owner = owner
        self._log = log
        self._folders = _cgroup_folders() if kind == "cgroup" else ()

    def strike(self, call: str, target: Any = None, dir_fd: int | None = None) -> None:
        """Count a call that is about to be made, if it is of this kind. OSError if it is one that shall fail."""
        if self.paused or call not in self.calls:
            return
        ours = whoami() == self._owner
        if (self._within != "all" and ours != (self._within == "owner")) or not self._meant(target, dir_fd):
            return
        number = self._count(call, ours)
        if number == self._n or (self._every and number > self._n):
            code = self._error or self.calls[call]
            path = [target] if isinstance(target, str | bytes | os.PathLike) else []
            raise OSError(code, os.strerror(code), *path)

    def _meant(self, target: Any, dir_fd: int | None) -> bool:
        """Whether this kind is about that file; calls without a file always count."""
        if self._kind not in ("cgroup", "namespace") or target is None:
            return True
        path = _path(target, dir_fd)
        if self._kind == "cgroup":
            return path.startswith(self._folders)
        return path.startswith("/proc/") and path.rpartition("/")[2] in _ID_MAPS

    def _count(self, call: str, ours: bool) -> int:
        frame = _asker()
        if frame is None:
            return 0
        who = "" if ours else f" ({os.fsdecode(_bytes('/proc/self/comm')).strip()})"
        text = f"{call} at {self._line_of(frame)}{who}"
        try:
            log = _Real.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:  # the context was left
            return 0
        try:
            _Real.write(log, text.encode(errors="replace")[: _RECORD - 1].ljust(_RECORD - 1) + b"\n")
            return _Real.lseek(log, 0, os.SEEK_CUR) // _RECORD
        finally:
            _Real.close(log)


def _asker() -> FrameType | None:
    """The line that led to the call: the first outside the standard library, where there is one.

    None for an import, whose calls depend on what was cached.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith("<frozen importlib"):
        return None
    asker: FrameType | None = frame
    while asker is not None and (_is_ours(asker) or _is_library(asker)):
        asker = asker.f_back
    return asker or frame


def _is_ours(frame: FrameType) -> bool:
    return frame.f_globals.get("__package__") == __package__


def _is_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(("<frozen", _LIBRARY)) and "-packages/" not in file


# -- files, by calls that nobody counts


def new_log(folder: str) -> str:
    path = f"{folder}/quell-faults-{_Real.getpid()}-{os.urandom(6).hex()}"
    _Real.close(_Real.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return path


def read_log(path: str) -> list[str]:
    """Every call that was counted, in order."""
    return [line.decode(errors="replace").rstrip() for line in _bytes(path).split(b"\n")[:-1]]


def _bytes(path: str) -> bytes:
    fd = _Real.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while piece := _Real.read(fd, 1 << 16):
            found += piece
        return found
    finally:
        _Real.close(fd)


def _path(target: Any, dir_fd: int | None) -> str:
    try:
        if isinstance(target, int):
            return _Real.readlink(f"/proc/self/fd/{target}")
        above = _Real.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else os.getcwd()
    except OSError:
        return ""
    return os.path.normpath(os.path.join(above, os.fsdecode(target)))


def _cgroup_folders() -> tuple[str, ...]:
    """Where cgroups are mounted, each with its slash."""
    mounts = [line.partition(" - ") for line in os.fsdecode(_bytes("/proc/self/mountinfo")).splitlines()]
    found = {left.split()[4].replace("\\040", " ") + "/" for left, _, right in mounts if right.startswith("cgroup")}
    return "/sys/fs/cgroup/", *found
