"""What one run needs around its loop, so that all is accounted for: its threads, its last tasks, and its garbage."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ..counting import Leak

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

LAST_WAIT = 1.0
"""Seconds for what is left on a loop to end when it is cancelled, before the loop is closed over it."""
WORKERS = 5
"""Threads of a loop's executor: as many as asyncio has on the smallest machine."""
PREFIX = "quell-testing"
UNCLOSED = "unclosed"
"""The kind of what only the garbage collector closed."""


@contextlib.contextmanager
def collected() -> Iterator[list[Leak]]:
    """The ResourceWarnings of a while: each is something that nobody closed."""
    found: list[Leak] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def shown(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, ResourceWarning):
                found.append(Leak(UNCLOSED, str(message).removeprefix("unclosed ")))
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = shown
        warnings.simplefilter("always", ResourceWarning)
        yield found


@contextlib.contextmanager
def workers(loop: asyncio.AbstractEventLoop, settle: float) -> Iterator[None]:
    """Give the loop its executor with all threads started, so that an idle one is no leak and one that stays is."""
    before = set(threading.enumerate())
    executor = ThreadPoolExecutor(WORKERS, thread_name_prefix=PREFIX)
    gate = threading.Barrier(WORKERS)
    for started in [executor.submit(gate.wait) for _ in range(WORKERS)]:
        started.result()
    threads = [each for each in threading.enumerate() if each not in before and each.name.startswith(PREFIX)]
    loop.set_default_executor(executor)
    try:
        yield
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        end = time.monotonic() + settle
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))


class _Lost(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


async def warm(loop: asyncio.AbstractEventLoop) -> None:
    """Open and close a connection: with the first one, libuv opens a file of the loop's own that it keeps."""
    ours, theirs = socket.socketpair()
    with theirs:
        transport, protocol = await loop.create_connection(_Lost, sock=ours)
        transport.abort()
        await protocol.lost


def close(loop: asyncio.AbstractEventLoop) -> None:
    """End what is left on the loop, in bounded time, and close it."""
    if loop.is_closed():
        return
    try:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            ended, _ = loop.run_until_complete(asyncio.wait(left, timeout=LAST_WAIT))
            for task in ended:
                if not task.cancelled():
                    task.exception()  # seen, so that asyncio does not speak of it
        with contextlib.suppress(TimeoutError):
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), LAST_WAIT))
    finally:
        loop.close()
