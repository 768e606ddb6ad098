"""The few Linux calls that the standard library of Python 3.11 lacks."""

from __future__ import annotations

import ctypes
import os
import struct

from .light import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_SLAVE = 2, 4, 8, 0x4000, 1 << 19
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_RELATIME = 1, 32, 4096, 1 << 21
_KEPT = MS_NOSUID | MS_NODEV | MS_NOEXEC | 1024 | 2048  # as statvfs has them; the last two are noatime, nodiratime
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
SFD_CLOEXEC, SFD_NONBLOCK = os.O_CLOEXEC, os.O_NONBLOCK
SI_KERNEL = 0x80  # the terminal's own signals carry this code; those sent with kill() do not

_SIGINFO_SIZE = 128
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    _check(_libc.setns(fd, flags), "setns")


def mount(source: str, target: str, kind: str | None, flags: int) -> None:
    words = os.fsencode(source), os.fsencode(target), kind.encode() if kind else None
    _check(_libc.mount(*words, ctypes.c_ulong(flags), None), f"mount {target}")


def seal(path: str) -> None:
    """Make a file or folder read-only by this name, for every process of this mount namespace."""
    mount(path, path, None, MS_BIND | MS_REC)
    flags = os.statvfs(path).f_flag  # in a user namespace none of these may be lost
    kept = flags & _KEPT | (MS_RELATIME if flags & 4096 else 0)
    mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def become_subreaper() -> None:
    """Orphans below this process become its children, not those of pid 1."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def die_with_parent() -> None:
    """SIGKILL this process when the thread that forked it ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl")


def hide_memory(hidden: bool = True) -> None:
    """Keep others of the same user from tracing this process or taking its descriptors (pidfd_getfd)."""
    _check(_libc.prctl(PR_SET_DUMPABLE, 0 if hidden else 1, 0, 0, 0), "prctl")


def argv_place() -> tuple[int, int]:
    """Where the kernel finds our argv, from and to; the same in all that we fork."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[45]), int(fields[46])  # arg_start and arg_end: fields 48 and 49 of the whole line


def rename(title: str, place: tuple[int, int] | None = None) -> None:
    """Give this process its own name and argv: agents type `pkill -9 -f python`."""
    start, end = place or argv_place()
    name, text = title.partition(" ")[0].encode()[:15], title.encode()[: max(0, end - start - 1)]
    try:  # by the kernel's files: what ctypes touches costs every keeper memory
        _put("/proc/self/comm", name)
        _put("/proc/self/mem", text.ljust(end - start, b"\0"), start)
    except OSError:  # our own memory is hidden from us if we are not root
        _libc.prctl(PR_SET_NAME, name, 0, 0, 0)
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))


def _put(path: str, data: bytes, at: int = 0) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if at:
            os.lseek(fd, at, os.SEEK_SET)
        os.write(fd, data)
    finally:
        os.close(fd)


class Signal:
    __slots__ = ("code", "number", "sender")

    def __init__(self, number: int, code: int, sender: int) -> None:
        self.number = number
        self.code = code
        self.sender = sender


class SignalFd:
    """Blocked signals as a readable descriptor, with the code that tells a key press from a `kill`."""

    def __init__(self, signals: Iterable[int]) -> None:
        wanted = set(signals)
        signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
        mask = sum(1 << (number - 1) for number in wanted)
        raw = (ctypes.c_uint64 * 16)(mask)
        self._fd = _check(_libc.signalfd(-1, raw, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd")

    def fileno(self) -> int:
        return self._fd

    def read(self) -> list[Signal]:
        try:
            data = os.read(self._fd, _SIGINFO_SIZE * 64)
        except BlockingIOError:
            return []
        found = (struct.unpack_from("=IiiI", data, at) for at in range(0, len(data), _SIGINFO_SIZE))
        return [Signal(number, code, sender) for number, _, code, sender in found]

    def close(self) -> None:
        os.close(self._fd)
