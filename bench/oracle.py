"""The oracle: a FIFO that every process of a crowd holds open. Its end of file says that all are gone.

A second FIFO says when the crowd is complete. Neither knows of Quell.
"""

import os
import select
import tempfile
import time
from types import TracebackType

BOUND = 30.0
"""Seconds for a crowd to be complete on a busy machine."""


class Fifo:
    def __init__(self, path: str) -> None:
        os.mkfifo(path, 0o666)
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def closed_within(self, seconds: float) -> bool:
        """Whether there were writers and the last one goes within this time."""
        return any(event & select.POLLHUP for _, event in self._poll.poll(seconds * 1000))

    def close(self) -> None:
        os.close(self._fd)


class Oracle:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="quell-bench-")
        self.held = Fifo(f"{self._folder.name}/held")
        self.building = Fifo(f"{self._folder.name}/building")

    def __enter__(self) -> "Oracle":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.held.close()
        self.building.close()
        self._folder.cleanup()

    @property
    def paths(self) -> list[str]:
        return [self.held.path, self.building.path]

    def await_complete(self) -> None:
        if not self.building.closed_within(BOUND):
            raise TimeoutError(f"the processes to be ended were not there within {BOUND:g} s")

    def gone(self) -> bool:
        """Whether nobody is left, right now."""
        return self.held.closed_within(0)

    def seconds_until_gone(self, began: float, limit: float) -> float | None:
        """Time from `began` until nobody is left; None if somebody still is after the limit."""
        return time.perf_counter() - began if self.held.closed_within(limit) else None
