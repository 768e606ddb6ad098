"""A command that leaves a tree behind which tries to outlive it, and two witnesses of its end that ask nobody of Quell:
a FIFO that all of the tree hold open, and /proc, searched for who has it open or a mark in its environment.
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
SCRIPT = """
exec 9>{fifo}
export QUELL_MARK={mark}
echo born >&9
setsid sh -c 'echo born >&9; exec sleep 600' &
(trap '' TERM HUP INT; echo born >&9; exec sleep 600) &
setsid sh -c '(trap "" HUP; echo born >&9; exec sleep 600) </dev/null >/dev/null 2>&1 &'
for n in 1 2 3 4 5 6 7 8; do echo "[$n/8] {name}: step $n is done"; sleep 0.03; done
sleep 600
"""


class Tree:
    """A script in the folder; whoever runs `line` there grows it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.line = f"$ ./{name}.sh"
        self._mark = f"QUELL_MARK={uuid.uuid4().hex}"
        self._fifo = folder / f".{name}.fifo"
        os.mkfifo(self._fifo)
        script = folder / f"{name}.sh"
        text = SCRIPT.format(fifo=self._fifo, mark=self._mark.partition("=")[2], name=name)
        script.write_text(f"#!/bin/sh\n{text}")
        script.chmod(0o755)
        self._fd = os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._said = b""

    def grown(self) -> None:
        wait_for(lambda: self._hear().count(b"born") >= BIRTHS, "all of the tree are born")
        assert self.whole

    @property
    def whole(self) -> bool:
        return len(self.alive()) >= BIRTHS

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
        return [line for pid in os.listdir("/proc") if pid.isdigit() and (line := self._member(Path("/proc", pid)))]

    def _member(self, process: Path) -> str:
        try:
            holds = os.readlink(process / "fd" / "9") == str(self._fifo)
        except OSError:
            holds = False
        try:
            marked = self._mark.encode() in (process / "environ").read_bytes()
            dead = (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            argv = (process / "cmdline").read_bytes().replace(bytes(1), b" ").decode(errors="replace")
        except OSError:
            return ""
        return f"{process.name} {argv[:80]}" if (holds or marked) and not dead else ""

    def __str__(self) -> str:
        return "; ".join(self.alive()) or "nobody"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)
