"""The streams of a process as asyncio streams, on descriptors that are ours to close at any moment (H03).

A cap cuts output off with a marker, and goes on reading, so that the process does not stand still.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.streams import FlowControlMixin
from typing import Any

from .errand import Fact

_CHUNK = 1 << 16
_REST = 1 << 20  # bytes: what a pipe can hold at the most
_HIGH = 1 << 16  # bytes of input that wait to be written before `drain` waits


def marker(cap: int) -> bytes:
    """What stands in the stream where output was cut."""
    return f"\n[quell: output cut here, after {cap} bytes]\n".encode()


class OutputPipe(asyncio.ReadTransport):
    """Feeds a StreamReader from a pipe or a terminal."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, reader: asyncio.StreamReader, cap: int | None) -> None:
        super().__init__()
        os.set_blocking(fd, False)
        self._loop = loop
        self._fd = fd
        self._reader = reader
        self._cap = cap
        self._paused = False
        self._greedy = False
        self.ended: Fact[None] = Fact(loop)
        self.seen = 0
        self.dropped = 0
        reader.set_transport(self)
        loop.add_reader(fd, self._ready)

    def _ready(self) -> bool:
        """Read once. Whether there may be more."""
        try:
            data = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # EIO: nobody has the other side of the terminal any more
            data = b""
        if not data:
            self.close()
            return False
        self._feed(data)
        return True

    def _feed(self, data: bytes) -> None:
        left = len(data) if self._cap is None else max(0, self._cap - self.seen)
        self.seen += len(data)
        if len(data) <= left:
            self._reader.feed_data(data)
            return
        if not self.dropped and self._cap is not None:
            self._reader.feed_data(data[:left] + marker(self._cap))
        self.dropped += len(data) - left

    def read_rest(self) -> None:
        """Nobody writes any more, or nobody may: take what is there, and close."""
        limit = self.seen + _REST  # somebody outside may have been handed the pipe, and write for ever
        while self._fd >= 0 and self.seen < limit and self._ready():
            pass
        self.close()

    def keep_reading(self) -> None:
        """Read on, however much the reader holds."""
        self.resume_reading()
        self._greedy = True

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._reader.feed_eof()
            self.ended.tell(None)

    def is_closing(self) -> bool:
        return self._fd < 0

    def is_reading(self) -> bool:
        return self._fd >= 0 and not self._paused

    def pause_reading(self) -> None:
        if self.is_reading() and not self._greedy:
            self._paused = True
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if self._fd >= 0 and self._paused:
            self._paused = False
            self._loop.add_reader(self._fd, self._ready)


class _Flow(FlowControlMixin):
    """What a StreamWriter asks: may I write on, and are you closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.closed = loop.create_future()

    def _get_close_waiter(self, stream: asyncio.StreamWriter) -> asyncio.Future[None]:
        return self.closed


class InputPipe(asyncio.WriteTransport):
    """Writes what a StreamWriter is given into a pipe or a terminal."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        super().__init__()
        os.set_blocking(fd, False)
        self._loop = loop
        self._fd = fd
        self._waiting = bytearray()
        self._ending = False
        self._held = False
        self._flow = _Flow(loop)
        self.writer = asyncio.StreamWriter(self, self._flow, None, loop)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._ending or not data:
            return
        if not self._waiting:
            data = memoryview(data)[self._put(data) :]
            if self._fd >= 0 and data:
                self._loop.add_writer(self._fd, self._flush)
        if self._fd >= 0:
            self._waiting += data
            if len(self._waiting) > _HIGH and not self._held:
                self._held = True
                self._flow.pause_writing()

    def _put(self, data: bytes | bytearray | memoryview[Any]) -> int:
        try:
            return os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:  # EPIPE: nobody reads
            self._shut(error)
            return 0

    def _flush(self) -> None:
        del self._waiting[: self._put(self._waiting)]
        if self._fd >= 0 and self._held and len(self._waiting) <= _HIGH // 4:
            self._held = False
            self._flow.resume_writing()
        if self._fd >= 0 and not self._waiting:
            self._loop.remove_writer(self._fd)
            if self._ending:
                self._shut(None)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.close()

    def close(self) -> None:
        """Once what waits is written."""
        self._ending = True
        if not self._waiting:
            self._shut(None)

    def abort(self) -> None:
        self._shut(None)

    def is_closing(self) -> bool:
        return self._ending or self._fd < 0

    def get_write_buffer_size(self) -> int:
        return len(self._waiting)

    def _shut(self, error: OSError | None) -> None:
        if self._fd < 0:
            return
        self._loop.remove_writer(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._ending = True
        self._waiting.clear()
        self._flow.connection_lost(error)
        if not self._flow.closed.done():
            self._flow.closed.set_result(None)
