"""Runs an async test on each event loop that users have, with a bound."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

BOUND = 30.0
"""Seconds after which a test hangs."""

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as _first:  # libuv opens a pipe for good with its first loop
    _first.run(asyncio.sleep(0))

Run = Callable[[Callable[[], Coroutine[Any, Any, T]]], T]


def run_on(factory: Callable[[], asyncio.AbstractEventLoop], main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(BOUND):
            return await main()

    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(bounded())


async def until(fact: Callable[[], bool], bound: float = 10.0) -> bool:
    """Wait for a fact. Whether it came true."""
    loop = asyncio.get_running_loop()
    end = loop.time() + bound
    while not fact():
        if loop.time() > end:
            return False
        await asyncio.sleep(0.005)
    return True


async def outcome(awaitable: Awaitable[object]) -> str:
    """How it ended, in a word."""
    try:
        await awaitable
    except asyncio.CancelledError:
        return "cancelled"
    except Exception as error:  # noqa: BLE001  any of them is what the test asks for
        return type(error).__name__
    return "done"
