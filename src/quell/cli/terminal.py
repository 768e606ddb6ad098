"""The terminal that we were started on, if any, and giving it back as we found it."""

from __future__ import annotations

import os

from ..supervise.keeper.light import signal


class Terminal:
    def __init__(self) -> None:
        self.there = any(os.isatty(fd) for fd in (0, 1, 2))
        self._ours = self.there and self._foreground() == os.getpgrp()

    def _open(self) -> int | None:
        try:
            return os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            return None

    def _foreground(self) -> int:
        fd = self._open()
        if fd is None:
            return 0
        try:
            return os.tcgetpgrp(fd)
        except OSError:
            return 0
        finally:
            os.close(fd)

    def take_back(self) -> None:
        """A shell inside a PID namespace cannot name our group when it ends, and leaves the terminal to its own."""
        if self._ours and self._foreground() != os.getpgrp() and self._deserted():
            self._give(os.getpgrp())

    def lend(self, pid: int) -> None:
        """As shells do when they continue a job: a command that leads a group of its own gets the terminal."""
        try:
            group = os.getpgid(pid)
        except ProcessLookupError:
            return
        if self.there and group != os.getpgrp() and self._foreground() == os.getpgrp():
            self._give(group)

    def _give(self, group: int) -> None:
        fd = self._open()
        if fd is None:
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
        try:
            os.tcsetpgrp(fd, group)
        except OSError:
            return
        finally:
            os.close(fd)

    def _deserted(self) -> bool:
        try:
            os.killpg(self._foreground(), 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False
