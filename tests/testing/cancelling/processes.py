"""Faults with real processes, each beside its correct form. What a fault forgets, its scenario ends after the check."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.testing.cancelling.plants import Target


class Sleepers:
    """Real processes, all of which this ends, whoever forgot them."""

    def __init__(self) -> None:
        self.made: list[asyncio.subprocess.Process] = []
        self.registered: list[asyncio.subprocess.Process] = []

    async def spawn(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec("sleep", "600")
        self.made.append(process)
        return process

    async def end(self) -> None:
        for process in self.made:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def register_after_bind(sleepers: Sleepers) -> None:
    process = await sleepers.spawn()
    await asyncio.sleep(0)  # cancelled here
    sleepers.registered.append(process)


async def end_what_could_not_bind(sleepers: Sleepers) -> None:
    process = await sleepers.spawn()
    try:
        await asyncio.sleep(0)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    sleepers.registered.append(process)


async def wait_for_process(sleepers: Sleepers) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "0.2")
    sleepers.made.append(process)
    await process.wait()  # cancelled here


def spawning(
    target: Callable[[Sleepers], Awaitable[None]],
) -> Callable[[], contextlib.AbstractAsyncContextManager[Target]]:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        sleepers = Sleepers()
        yield lambda: target(sleepers)
        await sleepers.end()

    return scenario


Reaped = list["subprocess.Popen[bytes]"]


async def reap(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    await asyncio.sleep(0)  # cancelled here
    process.wait()


async def reap_in_line(made: Reaped) -> None:
    process = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220
    made.append(process)
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        await reap(process)
        raise
    process.kill()
    process.wait()


async def reap_out_of_reach(made: Reaped) -> None:
    process = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220
    made.append(process)
    try:
        await asyncio.sleep(0)
    finally:
        reaping = asyncio.ensure_future(reap(process))
        cancelled = False
        while not reaping.done():
            try:
                await asyncio.shield(reaping)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError


def reaping(
    target: Callable[[Reaped], Awaitable[None]],
) -> Callable[[], contextlib.AbstractAsyncContextManager[Target]]:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        made: Reaped = []
        yield lambda: target(made)
        for process in made:
            process.wait()

    return scenario
