"""Runs a test of ownership on each loop that users have, eager ones included, and looks at what is left on it."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pytest
import uvloop

import quell

from .loops import BOUND, LOOPS, run_on

AnyTask = asyncio.Task[Any]
MakeLoop = Callable[[], asyncio.AbstractEventLoop]

QUICK = quell.Ladder(ask=0.2, term=0.5)
PATIENT = quell.Ladder(ask=12.0, term=0.5)
"""Whoever is quick within this one did not wait for a timeout."""

AT_ONCE = 5.0
"""Seconds, on a busy machine, for what takes no time."""


EVERY_LOOP: dict[str, MakeLoop] = dict(LOOPS)

if sys.version_info >= (3, 12):

    def eager_asyncio() -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.set_task_factory(asyncio.eager_task_factory)
        return loop

    def eager_uvloop() -> asyncio.AbstractEventLoop:
        """uvloop hands its factory an option that the one of the standard library does not know everywhere."""
        loop = uvloop.new_event_loop()
        loop.set_task_factory(_start_eagerly)
        return loop

    def _start_eagerly(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> AnyTask:
        return asyncio.Task(coroutine, loop=loop, **(options | {"eager_start": True}))

    EVERY_LOOP |= {"asyncio, eager": eager_asyncio, "uvloop, eager": eager_uvloop}

Body = Callable[[quell.Supervisor], Coroutine[Any, Any, None]]
Run = Callable[[Body], None]


def run_within(make: MakeLoop, body: Body, ladder: quell.Ladder = QUICK) -> None:
    """Run a test inside a supervisor. No task may be left on the loop, and the loop may not have complained."""
    complaints: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, said: complaints.append(f"{said['message']}: {said.get('exception')!r}"))
        async with quell.Supervisor(ladder=ladder) as sup:
            await body(sup)
        gc.collect()  # a task that is destroyed while it is pending complains then
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left on the loop: {left}"

    in_a_thread(lambda: run_on(make, main))
    assert complaints == []


def in_a_thread(call: Callable[[], None]) -> None:
    """A stop that never ends fails its test, and not the whole run: it hangs in a thread that dies with us."""
    found: Future[None] = Future()

    def whole() -> None:
        try:
            call()
            found.set_result(None)
        except BaseException as error:  # noqa: BLE001  handed over to the test, whatever it is
            found.set_exception(error)

    thread = threading.Thread(target=whole, daemon=True)
    thread.start()
    thread.join(BOUND + AT_ONCE)
    if thread.is_alive():
        pytest.fail(f"it has not ended within {BOUND + AT_ONCE:g} s")
    found.result()


async def forever() -> None:
    await asyncio.Event().wait()
