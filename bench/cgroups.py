"""The kernel's own way to end a crowd: a cgroup of the bench's own, and its `cgroup.kill`."""

import os
import time
from pathlib import Path
from types import TracebackType

from quell.supervise.contain import cgroup_home

BOUND = 10.0
LOOK = 50e-6
"""Seconds between two looks. Waiting for the file's event would be slower: the kernel sends one per 10 ms at most."""


class Cgroup:
    def __init__(self) -> None:
        self.path = Path(cgroup_home()) / f"quell-bench-{os.urandom(6).hex()}"
        self.path.mkdir()

    def __enter__(self) -> "Cgroup":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self.path.rmdir()

    def members(self) -> int:
        return len((self.path / "cgroup.procs").read_text().split())

    def kill(self) -> float:
        """Seconds from the write until the kernel says that nobody is in it."""
        events = os.open(self.path / "cgroup.events", os.O_RDONLY)
        kill = os.open(self.path / "cgroup.kill", os.O_WRONLY)
        try:
            began = time.perf_counter()
            os.write(kill, b"1")
            while b"populated 1" in os.pread(events, 4096, 0):
                if time.perf_counter() - began > BOUND:
                    raise TimeoutError("cgroup.kill did not empty the cgroup")
                time.sleep(LOOK)
            return time.perf_counter() - began
        finally:
            os.close(kill)
            os.close(events)
