"""The oracle: a FIFO that every descendant holds open for writing. Only its end of file says that all are gone.

It knows nothing of Quell and asks it nothing.
"""

import os
import select
import time
from pathlib import Path


class Oracle:
    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        path.chmod(0o666)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._said = b""
        self.gone_at: float | None = None

    def look(self, seconds: float = 0.0) -> None:
        """Take in what was said, waiting at most this long for something to be said or for the last one to go."""
        if self.gone_at is not None:
            time.sleep(seconds)
            return
        for _, event in self._poll.poll(int(seconds * 1000)):
            if event & select.POLLIN:
                self._said += os.read(self._fd, 1 << 16)
            elif event & select.POLLHUP:  # there were writers, and there are none any more
                self.gone_at = time.monotonic()

    @property
    def gone(self) -> bool:
        return self.gone_at is not None

    def heard(self, word: str) -> int:
        """How often this line was written."""
        return self._said.split(b"\n").count(word.encode())


class Ear:
    """A FIFO on which descendants wait for a word of ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        path.chmod(0o666)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def tell(self) -> None:
        os.write(self._fd, b"go\n")
