"""Faults planted for `cancel_everywhere`, each beside its correct form. The line to be named says `cancelled here`."""

import asyncio
import contextlib
import inspect
import os
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

Target = Callable[[], Awaitable[object]]
Scenario = Callable[[], contextlib.AbstractAsyncContextManager[Target]]
MARK = "# cancelled here"


def marked(function: Callable[..., object], mark: str = MARK) -> str:
    """The marked line of a function, as it is to be named."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [offset for offset, line in enumerate(lines) if mark in line]
    return f"{inspect.getsourcefile(function)}:{first + offset} in {function.__qualname__}"


# -- tasks


class Connection:
    """As libraries have them: two loops of its own, from the moment it is made."""

    def __init__(self) -> None:
        self._loops = [asyncio.ensure_future(self._serve()) for _ in ("sender", "dispatcher")]
        self.closed = asyncio.Event()

    async def _serve(self) -> None:
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.wait(self._loops)


async def listen_and_forget() -> None:
    await Connection().closed.wait()  # cancelled here


async def listen_and_close() -> None:
    connection = Connection()
    try:
        await connection.closed.wait()
    finally:
        closing = asyncio.ensure_future(connection.aclose())
        while not closing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(closing)


# -- files, sockets, threads


@contextlib.asynccontextmanager
async def descriptor_between_open_and_try() -> AsyncIterator[Target]:
    made: list[int] = []
    yield lambda: leave_descriptor(made)
    for fd in made:
        with contextlib.suppress(OSError):
            os.close(fd)


async def leave_descriptor(made: list[int]) -> None:
    fd = os.open("/dev/null", os.O_RDONLY)
    made.append(fd)
    await asyncio.sleep(0)  # cancelled here
    try:
        await asyncio.sleep(0)
    finally:
        os.close(fd)


async def close_descriptor() -> None:
    fd = os.open("/dev/null", os.O_RDONLY)
    try:
        await asyncio.sleep(0)
    finally:
        os.close(fd)


async def leave_socket_to_the_collector() -> None:
    ours = socket.socket()
    await asyncio.sleep(0)  # cancelled here
    ours.close()


async def close_socket() -> None:
    with socket.socket():
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def thread_that_nobody_stops() -> AsyncIterator[Target]:
    stop = threading.Event()
    yield lambda: leave_thread(stop)
    stop.set()


async def leave_thread(stop: threading.Event) -> None:
    thread = threading.Thread(target=stop.wait)
    thread.start()
    await asyncio.sleep(0)  # cancelled here
    stop.set()
    thread.join()


async def stop_thread() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        await asyncio.sleep(0)
    finally:
        stop.set()
        thread.join()


async def wait_in_a_thread(seconds: float) -> None:
    await asyncio.to_thread(threading.Event().wait, seconds)  # cancelled here


@contextlib.asynccontextmanager
async def temporary_file_that_stays() -> AsyncIterator[Target]:
    made: list[str] = []
    yield lambda: leave_file(made)
    for path in made:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


async def leave_file(made: list[str]) -> None:
    fd, path = tempfile.mkstemp()
    os.close(fd)
    made.append(path)
    await asyncio.sleep(0)  # cancelled here
    os.unlink(path)


async def remove_file() -> None:
    with tempfile.NamedTemporaryFile():
        await asyncio.sleep(0)


# -- what only the program itself knows of


@contextlib.asynccontextmanager
async def lock_that_stays_locked() -> AsyncIterator[Target]:
    lock = asyncio.Lock()
    yield lambda: keep_lock(lock)
    assert not lock.locked(), "the lock is still held"


async def keep_lock(lock: asyncio.Lock) -> None:
    await lock.acquire()
    await asyncio.sleep(0)  # cancelled here
    lock.release()


@contextlib.asynccontextmanager
async def lock_that_is_released() -> AsyncIterator[Target]:
    lock = asyncio.Lock()
    yield lambda: give_lock_back(lock)
    assert not lock.locked()


async def give_lock_back(lock: asyncio.Lock) -> None:
    async with lock:
        await asyncio.sleep(0)


async def lost_item(run: Callable[[Target], Awaitable[object]]) -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()
    queue.put_nowait("item")
    received: list[str] = []
    await run(lambda: lose_item(queue, received))
    assert queue.qsize() + len(received) == 1, "the item is lost"


async def lose_item(queue: asyncio.Queue[str], received: list[str]) -> None:
    item = await queue.get()
    await asyncio.sleep(0)  # cancelled here
    received.append(item)


async def kept_item(run: Callable[[Target], Awaitable[object]]) -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()
    queue.put_nowait("item")
    received: list[str] = []

    async def keep_item() -> None:
        received.append(await queue.get())
        await asyncio.sleep(0)

    await run(keep_item)
    assert queue.qsize() + len(received) == 1


# -- cancels that do not arrive


async def swallow() -> None:
    try:
        await asyncio.sleep(0)  # cancelled here
    except BaseException:  # noqa: BLE001  the fault itself
        pass


async def turn_into_an_error() -> None:
    try:
        await asyncio.sleep(0)  # cancelled here
    except asyncio.CancelledError as error:
        raise OSError("the connection was lost") from error


async def uncancel() -> None:
    try:
        await asyncio.sleep(0)  # cancelled here
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        raise


async def hang_in_clean_up() -> None:
    try:
        await asyncio.sleep(0)  # cancelled here
    except asyncio.CancelledError:
        await asyncio.Event().wait()  # hangs here
        raise
