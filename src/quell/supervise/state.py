"""The state directory of a supervisor, and the lock that makes it its only owner.

The lock dies with its holder: it is a POSIX record lock, which a forked child does not share, so that no orphan can
hold a directory after its owner was killed (H51).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import threading

from ..errors import StateInUseError, UsageError
from .keeper.proc import Proc
from .ledger import state_dir

_OWNER = "owner"
_FLOCK = struct.Struct("hhqqi4x")  # struct flock
_one_at_a_time = threading.Lock()
CONTROL = "control.sock"


class StateFolder:
    """One that was named is taken exclusively; otherwise a fresh one below the usual place, removed in the end."""

    def __init__(self, named: str | None) -> None:
        self._own = named is None
        try:
            with _one_at_a_time:  # record locks do not keep the threads of one process apart
                if named is None:
                    self._take_fresh(os.path.join(state_dir(), "supervisors"))
                else:
                    self.path = os.path.abspath(named)
                    os.makedirs(self.path, mode=0o700, exist_ok=True)
                    self._lock = _lock(self.path)
        except OSError as error:
            where = f"the state directory {error.filename or named or state_dir()}"
            what = "choose another with state_dir=, or QUELL_STATE_DIR"
            raise UsageError(f"{where} cannot be used: {error.strerror}; {what}") from None

    def _take_fresh(self, shelf: str) -> None:
        os.makedirs(shelf, mode=0o700, exist_ok=True)
        guard = os.open(os.path.join(shelf, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(guard, fcntl.LOCK_EX)  # else another start takes the new folder for one that was left
            _clear(shelf)
            self.path = os.path.join(shelf, f"{os.getpid()}-{os.urandom(6).hex()}")
            os.mkdir(self.path, 0o700)
            self._lock = _lock(self.path)
        finally:
            os.close(guard)

    @property
    def ledger(self) -> str | None:
        """Where the ledger is: shared by those that were given no directory of their own."""
        return None if self._own else self.path

    def close(self) -> None:
        _remove(os.path.join(self.path, CONTROL))
        if self._own:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _lock(folder: str) -> int:
    path = os.path.join(folder, _OWNER)
    # A record lock does not keep out its own process, and any close of the file there gives it up: so look first.
    if os.path.realpath(path) in open_here():
        raise StateInUseError(_sentence(folder, os.getpid()))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        holder = os.read(fd, 20)
        os.close(fd)
        raise StateInUseError(_sentence(folder, int(holder) if holder.isdigit() else 0)) from None
    except OSError:
        os.close(fd)
        raise
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
    except OSError:  # a full disk: the lock holds all the same, and only cannot say whose it is
        return fd
    return fd


def owner_of(folder: str) -> int | None:
    """The process that owns a state directory: 0 if that cannot be told, None if nobody does. Takes nothing."""
    path = os.path.join(folder, _OWNER)
    if os.path.realpath(path) in open_here():  # a close of ours would give the lock up
        return os.getpid()
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def _sentence(folder: str, pid: int) -> str:
    proc = Proc()
    argv = " ".join(proc.argv(pid))[:60] if pid else ""
    proc.close()
    who = f"process {pid} ({argv})" if argv else "another process"
    return f"the state directory {folder} is in use by {who}; stop that one, or choose another with state_dir="


def open_here() -> set[str]:
    """Every file that this process has open, by its path."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:  # the listing's own
            continue
    return found


def _clear(shelf: str) -> None:
    """Remove what supervisors that were killed left here: whoever lives holds its lock."""
    for name in os.listdir(shelf):
        folder = os.path.join(shelf, name)
        if not os.path.isdir(folder):
            continue
        try:
            fd = _lock(folder)
        except (OSError, StateInUseError):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(fd)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
