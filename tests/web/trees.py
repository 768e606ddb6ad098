"""A command that leaves a tree behind which tries to outlive it, and two witnesses of its end that ask nobody of Quell:
a FIFO that all of the tree holds open, and /proc, searched for a mark that is in the arguments or environment of all.
"""

import os
import select
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.oracle import wait_for

BIRTHS = 4
"""The shell, one in a session of its own, one that ignores SIGTERM, and a daemon that was forked twice."""


class Tree:
    def __init__(self, folder: Path) -> None:
        self.mark = f"quell-web-{uuid.uuid4().hex}"
        self._path = folder / f"{self.mark}.fifo"
        os.mkfifo(self._path)
        self._path.chmod(0o666)
        self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._said = b""

    @property
    def line(self) -> str:
        """What to say to an agent that runs commands."""
        return (
            f"$ exec 9>{self._path}; export QUELL_MARK={self.mark}; echo born >&9; "
            "setsid sh -c 'echo born >&9; exec sleep 600' & "
            "(trap '' TERM HUP INT; echo born >&9; exec sleep 600) & "
            "setsid sh -c '(trap \"\" HUP; echo born >&9; exec sleep 600) </dev/null >/dev/null 2>&1 &'; "
            "for n in 1 2 3 4 5 6; do echo \"step $n of 6\"; sleep 0.05; done; sleep 600"
        )

    def grown(self) -> None:
        wait_for(lambda: self._hear().count(b"born") >= BIRTHS, "all of the tree are born")
        assert len(self.alive()) >= BIRTHS

    def _hear(self) -> bytes:
        try:
            self._said += os.read(self._fd, 1 << 16)
        except BlockingIOError:
            pass
        return self._said

    def gone(self, bound: float) -> float:
        """Seconds until the kernel says that nobody has the FIFO any more; and /proc knows nobody of the tree."""
        began = time.monotonic()
        poll = select.poll()
        poll.register(self._fd, 0)
        wait_for(lambda: any(event & select.POLLHUP for _, event in poll.poll(0)), f"the tree is gone: {self}", bound)
        seconds = time.monotonic() - began
        assert self.alive() == []
        return seconds

    def alive(self) -> list[str]:
        return [line for pid in os.listdir("/proc") if pid.isdigit() and (line := self._member(pid))]

    def _member(self, pid: str) -> str:
        try:
            argv = Path("/proc", pid, "cmdline").read_bytes()
            environment = Path("/proc", pid, "environ").read_bytes()
            dead = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return ""
        mine = self.mark.encode() in argv + environment and not dead
        return f"{pid} {argv.replace(bytes(1), b' ').decode(errors='replace')[:80]}" if mine else ""

    def __str__(self) -> str:
        return "; ".join(self.alive()) or "nobody"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)
