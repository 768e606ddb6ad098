"""One writer for each log: a lock that dies with its holder (H51).

It is a POSIX record lock on a file beside the log, which a forked child does not share. SQLite's own locks keep
transactions apart, not two writers that each count their own events.
"""

from __future__ import annotations

import fcntl
import os
import threading

from ..errors import StoreError
from ..supervise.state import open_here

_one_at_a_time = threading.Lock()


class Ownership:
    """Taken when made; StoreError where somebody else has it."""

    def __init__(self, log: str) -> None:
        self._path = f"{log}-owner"
        with _one_at_a_time:  # record locks do not keep the threads of one process apart
            while (fd := self._attempt(log)) is None:
                pass
        self._fd = fd

    def _attempt(self, log: str) -> int | None:
        """None where the last holder removed the file at the same moment."""
        # A record lock does not keep out its own process, and any close there gives it up: so look first.
        if os.path.realpath(self._path) in open_here():
            raise _refusal(log, os.getpid())
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(self._path).st_ino == os.fstat(fd).st_ino
        except FileNotFoundError:
            there = False
        except (BlockingIOError, PermissionError):
            holder = os.read(fd, 20)
            os.close(fd)
            raise _refusal(log, int(holder) if holder.isdigit() else 0) from None
        except OSError:
            os.close(fd)
            raise
        if not there:
            os.close(fd)
            return None
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        except OSError:  # a full disk: the lock holds all the same, and only cannot say whose it is
            return fd
        return fd

    def release(self) -> None:
        try:
            os.unlink(self._path)  # while it is held: whoever opened it before sees that it is not there any more
        except OSError:  # gone with its folder, or the disk has become read-only: the lock ends all the same
            pass
        finally:
            os.close(self._fd)


def _refusal(log: str, pid: int) -> StoreError:
    who = "this process" if pid == os.getpid() else f"process {pid}" if pid else "another process"
    return StoreError(f"the log {log} is locked by {who}, which writes it; end that one, or name another file")
