"""Every way to make a task that people and libraries use: each makes one that runs `leaf`, and waits for ever."""

import asyncio
import contextvars
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import anyio.to_thread

from .owned import forever

Leaf = Callable[[], Coroutine[Any, Any, None]]
Maker = Callable[[Leaf], Coroutine[Any, Any, None]]


async def by_create_task(leaf: Leaf) -> None:
    kept = asyncio.create_task(leaf())
    await forever()
    kept.cancel()


async def and_lets_go_of_it(leaf: Leaf) -> None:
    asyncio.get_running_loop().create_task(leaf())
    await forever()


async def by_ensure_future(leaf: Leaf) -> None:
    await asyncio.ensure_future(leaf())


async def by_a_task_group(leaf: Leaf) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leaf())


async def by_gather(leaf: Leaf) -> None:
    await asyncio.gather(leaf(), forever())


async def by_wait_for(leaf: Leaf) -> None:
    await asyncio.wait_for(leaf(), 600)


async def by_a_shield(leaf: Leaf) -> None:
    await asyncio.shield(leaf())


async def by_as_completed(leaf: Leaf) -> None:
    for one in asyncio.as_completed([leaf(), forever()]):
        await one


async def by_an_anyio_task_group(leaf: Leaf) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(leaf)


async def by_an_anyio_task_group_with_a_shield(leaf: Leaf) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(leaf)
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()


async def by_a_callback(leaf: Leaf) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(0.001, lambda: loop.create_task(leaf()))
    await forever()


async def by_the_end_of_a_task(leaf: Leaf) -> None:
    short = asyncio.create_task(asyncio.sleep(0.001))
    short.add_done_callback(lambda _: asyncio.ensure_future(leaf()))
    await forever()


async def by_a_task_of_a_task(leaf: Leaf) -> None:
    await asyncio.create_task(by_gather(leaf))


async def by_a_generator(leaf: Leaf) -> None:
    async def each() -> AsyncIterator[int]:
        kept = asyncio.create_task(leaf())
        yield 1
        await kept

    async for _ in each():
        pass


async def from_a_thread(leaf: Leaf) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(leaf(), loop))
    await forever()


async def from_a_thread_of_the_executor(leaf: Leaf) -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, lambda: asyncio.run_coroutine_threadsafe(leaf(), loop))
    await forever()


async def from_a_thread_of_anyio(leaf: Leaf) -> None:
    loop = asyncio.get_running_loop()
    await anyio.to_thread.run_sync(lambda: asyncio.run_coroutine_threadsafe(leaf(), loop))
    await forever()


async def around_the_factory(leaf: Leaf) -> None:
    kept = asyncio.Task(leaf(), loop=asyncio.get_running_loop())
    await forever()
    kept.cancel()


async def around_the_factory_in_a_context_of_its_own(leaf: Leaf) -> None:
    await asyncio.Task(leaf(), loop=asyncio.get_running_loop(), context=contextvars.copy_context())


MAKERS: list[Maker] = [
    by_create_task, and_lets_go_of_it, by_ensure_future, by_a_task_group, by_gather, by_wait_for, by_a_shield,
    by_as_completed, by_an_anyio_task_group, by_an_anyio_task_group_with_a_shield, by_a_callback, by_the_end_of_a_task,
    by_a_task_of_a_task, by_a_generator, from_a_thread, from_a_thread_of_the_executor, from_a_thread_of_anyio,
    around_the_factory, around_the_factory_in_a_context_of_its_own,
]  # fmt: skip

if sys.version_info >= (3, 12):

    async def around_the_factory_and_eagerly(leaf: Leaf) -> None:
        kept = asyncio.Task(leaf(), loop=asyncio.get_running_loop(), eager_start=True)
        await forever()
        kept.cancel()

    MAKERS.append(around_the_factory_and_eagerly)
