"""Tasks that nobody owns are found: pending, in a closed loop, destroyed, or swept up by the end of their runner."""

import asyncio
import gc
import sys
import threading
import time

import pytest

from quell.testing import pending
from quell.testing.counting import Leak, census, tracking
from quell.testing.notes import Lost

from .counting import BOUND, LOOPS, SHORT, NewLoop, line, words

pytestmark = [
    pytest.mark.usefixtures("libuv", "temporary"),
    pytest.mark.leak_census(kinds=()),
]  # a census is what they are about


async def waits() -> None:
    await asyncio.sleep(600)


async def leaves_two() -> None:
    """The shape of a listener that is cancelled, and whose two loops nobody ends."""
    for name in ("sender", "dispatcher"):
        asyncio.create_task(waits(), name=name)  # noqa: RUF006  # nobody keeps it: that is the leak
    await asyncio.sleep(0)


AT = f"{__file__}:{waits.__code__.co_firstlineno + 1} in waits"
MADE = f"{__file__}:{leaves_two.__code__.co_firstlineno + 3} in leaves_two"


@LOOPS
def test_a_task_whose_loop_is_closed_is_a_leak_at_once(new_loop: NewLoop, quiet: None) -> None:
    """Nothing will ever run it again."""
    loop = new_loop()
    start = time.monotonic()
    with tracking():
        before = census(kinds="task")
        loop.run_until_complete(leaves_two())
        kept = asyncio.all_tasks(loop)
        loop.close()
        leaks = before.leaks(settle=BOUND)
    assert time.monotonic() - start < BOUND / 2
    assert sorted(words(leaks)) == [
        f"task 'dispatcher' waiting at {AT}, in a loop that is closed",
        f"task 'sender' waiting at {AT}, in a loop that is closed",
    ]
    assert {leak.made for leak in leaks} == {MADE}
    assert len(kept) == 2


@LOOPS
def test_a_task_that_was_destroyed_while_it_waited_is_a_leak(new_loop: NewLoop, quiet: None) -> None:
    """asyncio says "Task was destroyed but it is pending"; the census knows the line that made it."""
    with tracking():
        before = census()
        loop = new_loop()
        loop.run_until_complete(leaves_two())
        loop.close()
        gc.collect()
        leaks = before.leaks(settle=0)
    assert sorted(leak.what.partition(" at ")[0] for leak in leaks) == [  # the line is not always there any more
        "'dispatcher' destroyed while it was waiting",
        "'sender' destroyed while it was waiting",
    ]
    assert {leak.made for leak in leaks} == {MADE}


def test_a_lost_task_is_told_though_one_from_before_had_its_number(quiet: None) -> None:
    """Numbers of objects are used again once their holder is gone."""
    loop = asyncio.new_event_loop()
    with tracking() as notes:
        old = loop.create_task(waits(), name="old")
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        before = census(kinds="task")
        notes.lost += [Lost(id(old), f"{name!r} destroyed while it was waiting", None) for name in ("old", "new")]
        leaks = before.leaks(settle=0)
    assert [leak.what for leak in leaks] == ["'new' destroyed while it was waiting"]


@LOOPS
def test_a_task_that_only_the_end_of_its_runner_cancels_is_a_leak(new_loop: NewLoop) -> None:
    """`asyncio.run` sweeps up what nobody owns; in a program that goes on, it would stay."""
    with tracking(settle=SHORT):
        before = census()
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(leaves_two())
        leaks = before.leaks(settle=0)
    assert words(leaks) == [
        f"task 'dispatcher' left to the end of its runner, waiting at {AT}",
        f"task 'sender' left to the end of its runner, waiting at {AT}",
    ]
    assert {leak.made for leak in leaks} == {MADE}


@LOOPS
def test_a_task_that_ends_when_it_gets_the_chance_is_no_leak(new_loop: NewLoop) -> None:
    async def leaves_two_that_end() -> None:
        asyncio.create_task(waits()).cancel()
        asyncio.create_task(asyncio.sleep(0.02))  # noqa: RUF006

    with tracking():
        before = census(kinds="task")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(leaves_two_that_end())
        loop = new_loop()  # and in one that nobody turns
        loop.run_until_complete(leaves_two_that_end())
        leaks = before.leaks()
        loop.close()
    assert words(leaks) == []


@LOOPS
def test_inside_a_running_loop_the_loop_goes_on_meanwhile(new_loop: NewLoop) -> None:
    async def main() -> list[Leak]:
        before = census()
        short = asyncio.create_task(asyncio.sleep(0.01))
        long, made.made = asyncio.create_task(waits(), name="long"), line()
        found = await before.settled_leaks(settle=2)
        assert short.done()
        long.cancel()
        assert await before.settled_leaks() == []
        return found

    class Made:
        made = ""

    made = Made()
    with tracking(), asyncio.Runner(loop_factory=new_loop) as runner:
        leaks = runner.run(main())
    assert words(leaks) == [f"task 'long' waiting at {AT}"]
    assert leaks[0].made is not None and leaks[0].made.startswith(made.made)


def test_a_task_without_a_name_is_named_by_its_coroutine() -> None:
    async def main() -> list[Leak]:
        before = census(kinds="task")
        async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
            task = group.create_task(waits())
            await asyncio.sleep(0)
            leaks = await before.settled_leaks(0)
            assert leaks[0].what == f"{task.get_name()!r} (waits) waiting at {AT}"
            task.cancel()
        return leaks

    assert len(asyncio.run(main())) == 1


def test_a_runner_is_closed_whatever_its_last_tasks_raise() -> None:
    async def leaves_one_that_exits() -> asyncio.AbstractEventLoop:
        asyncio.get_running_loop().call_later(0.01, sys.exit, "planted")
        asyncio.create_task(waits())  # noqa: RUF006  # nobody keeps it: that is the leak
        return asyncio.get_running_loop()

    with tracking(), pytest.raises(SystemExit, match="planted"):
        with asyncio.Runner() as runner:
            loop = runner.run(leaves_one_that_exits())
    assert loop.is_closed()


@LOOPS
def test_a_loop_of_another_thread_is_not_turned(new_loop: NewLoop) -> None:
    loop = new_loop()
    over, ended = threading.Event(), threading.Event()

    def other() -> None:
        loop.run_until_complete(leaves_two())
        over.wait()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        ended.set()

    with tracking():
        before = census(kinds="task")
        thread = threading.Thread(target=other)
        thread.start()
        leaks = before.leaks(settle=SHORT)
        over.set()
        thread.join()
        assert len(leaks) == 2
        assert ended.is_set()
        assert words(before.leaks()) == []


def test_tasks_are_found_where_asyncio_keeps_them_out_of_sight() -> None:
    async def main() -> None:
        task = asyncio.create_task(waits())
        assert task in pending._in_memory()
        assert task in pending._in_sets()
        task.cancel()

    asyncio.run(main())
