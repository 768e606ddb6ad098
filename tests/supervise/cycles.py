"""Everything that can be started in a scope, started and stopped, one after another on one supervisor."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import quell

Cycle = Callable[[quell.Supervisor, int], Awaitable[None]]
SLEEP = ["sleep", "600"]


async def for_ever() -> None:
    """Without a clock: asyncio holds a cancelled one for a while, with the context that it was set in."""
    await asyncio.Event().wait()


async def ends_by_itself(sup: quell.Supervisor, number: int) -> None:
    process = await sup.spawn(["true"])
    assert await process.wait() == 0


async def talks(sup: quell.Supervisor, number: int) -> None:
    process = await sup.spawn(["cat"], stdin=quell.PIPE, stdout=quell.PIPE, stderr=quell.PIPE)
    assert await process.communicate(b"a word") == (b"a word", b"")


async def is_stopped(sup: quell.Supervisor, number: int) -> None:
    process = await sup.spawn(SLEEP)
    assert [one.pid for one in await process.tree()] == [process.pid]
    assert (await process.stop(force=number % 2 == 0)).confirmed


async def is_not_there(sup: quell.Supervisor, number: int) -> None:
    with pytest.raises(quell.SpawnError):
        await sup.spawn(["/no/such/command"])


async def is_cancelled(sup: quell.Supervisor, number: int) -> None:
    """At another step each time."""
    asker = asyncio.ensure_future(sup.spawn(SLEEP, stdout=quell.PIPE))
    for _ in range(number % 7):
        await asyncio.sleep(number % 3 / 1000)
    asker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await asker).stop(force=True)


async def has_a_box(sup: quell.Supervisor, number: int) -> None:
    scope = sup.scope("boxed", box=True)
    await scope.spawn(SLEEP)
    assert (await scope.stop(force=number % 2 == 0)).confirmed


async def has_an_empty_box(sup: quell.Supervisor, number: int) -> None:
    async with sup.scope("empty", box=True) as scope:
        scope.scope("inner")


async def has_tasks(sup: quell.Supervisor, number: int) -> None:
    async def root() -> None:
        await asyncio.gather(*(for_ever() for _ in range(3)))

    scope = sup.scope("tasks")
    scope.scope("inner").task(root())
    scope.task(root())
    await scope.task(asyncio.sleep(0))
    await asyncio.sleep(0)
    assert (await scope.stop()).confirmed


async def has_a_connection(sup: quell.Supervisor, number: int) -> None:
    @contextlib.asynccontextmanager
    async def connection() -> AsyncIterator[asyncio.Task[None]]:
        listener = asyncio.create_task(for_ever())
        yield listener
        listener.cancel()

    scope = sup.scope("connected")
    assert not (await scope.enter(connection())).done()
    late = asyncio.ensure_future(scope.enter(connection()))
    for _ in range(number % 4):
        await asyncio.sleep(0)
    late.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await late
    assert (await scope.stop()).confirmed


async def is_stopped_from_outside(sup: quell.Supervisor, number: int) -> None:
    scope = sup.scope("watched")
    await scope.spawn(SLEEP)
    receipt = await asyncio.to_thread(quell.ask_stop, sup.state_dir, scope=scope.path, force=True, timeout=30)
    assert receipt.confirmed and await scope.stopped() == receipt


CYCLES: list[Cycle] = [
    ends_by_itself,
    talks,
    is_stopped,
    is_cancelled,
    has_a_box,
    has_tasks,
    is_not_there,
    has_an_empty_box,
    has_a_connection,
    is_stopped_from_outside,
]


async def cycles(sup: quell.Supervisor, first: int, last: int) -> None:
    for number in range(first, last):
        await CYCLES[number % len(CYCLES)](sup, number // len(CYCLES))
