"""Processes that are not ours to end: a server that was told to outlive its terminal, and the user's own browser.

A server that is detached tells whoever started it, by a pipe, what it would have shown; when that has ended, it serves
or has failed, and nobody is left to guess.
"""

from __future__ import annotations

import os
import select
import sys

from .keeper.light import signal
from .keeper.linux import SignalFd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

READY = b"."
_HAND_OVER = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"


class Parted:
    """The two sides of a fork: `pid` is 0 in the child, which has a session of its own and nothing on its streams."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self._pipe = pipe

    # -- the child's

    def tell(self, stream: int, text: str) -> None:
        """What would be shown on this stream. Nobody may be there to read it."""
        self._put(f"{stream}{text.rstrip()}\n".encode(errors="backslashreplace"))

    def ready(self) -> None:
        """It serves: whoever started it need not wait any more."""
        self._put(READY + b"\n")
        os.close(self._pipe)
        self._pipe = -1

    def _put(self, data: bytes) -> None:
        try:
            while data and self._pipe >= 0:
                data = data[os.write(self._pipe, data) :]
        except OSError:
            return

    # -- the parent's

    def attend(self, show: Callable[[int, str], object], heard: Iterable[int]) -> int:
        """Until the child serves (0) or has ended (its code). Signals that are heard are the child's."""
        signals = SignalFd(heard)
        poller = select.poll()
        poller.register(signals, select.POLLIN)
        poller.register(self._pipe, select.POLLIN)
        try:
            rest = b""
            while True:
                ready = {fd for fd, _ in poller.poll()}
                for one in signals.read():
                    os.kill(self.pid, one.number)
                if self._pipe not in ready:
                    continue
                data = os.read(self._pipe, 1 << 16)
                if not data:
                    code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                    return code if code >= 0 else 128 - code
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if line == READY:
                        return 0
                    show(int(line[:1]), f"{line[1:].decode(errors='backslashreplace')}\n")
        finally:
            signals.close()
            os.close(self._pipe)


def part() -> Parted:
    """Fork, while there is one thread and signals are held back. The child stands alone from its first step on."""
    read, write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(write)
        return Parted(pid, read)
    os.close(read)
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    if null > 2:
        os.close(null)
    return Parted(0, write)


def hand_over(argv: Sequence[str]) -> bool:
    """Start a program that is none of ours: in a session of its own, nobody's child, ended by nobody here."""
    actions = [(os.POSIX_SPAWN_OPEN, stream, "/dev/null", os.O_RDWR, 0) for stream in (0, 1, 2)]
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _HAND_OVER, *argv],
            os.environ,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE],
        )
        return os.waitpid(pid, 0)[1] == 0
    except OSError:
        return False
