"""Every step of every task is a point, and every wait for something outside; a loop that hides them is refused."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quell.errors import UsageError
from tests.testing.cancelling.covering import Cover, clean_up_of_one_step, everywhere, three_steps


async def two_tasks() -> None:
    async def other() -> None:
        await asyncio.sleep(0)

    await asyncio.ensure_future(other())  # 1 start, 2 and 3 of the other, 4 wake-up


async def timer() -> None:
    await asyncio.sleep(0.05)  # 1 start, 1+ waiting, 2 the timer, 3 wake-up


async def thread() -> None:
    await asyncio.to_thread(time.sleep, 0.05)  # 1 start, 1+ waiting, 2 its call, 3 a look whether to cancel, 4 wake-up


@pytest.mark.parametrize(
    ("target", "points", "pairs"),
    [
        (three_steps, 3, 0),
        (two_tasks, 4, 2),  # cancelled at 2 or 3, the other's step and then our own are still to come
        (clean_up_of_one_step, 3, 1),  # cancelled at 2, it has 3 to go
        (timer, 4, 2),  # cancelled at 1+, it has its wake-up to go; at 2, the timer and 3
        (thread, 5, 5),  # cancelled at 1+ or 2, it has two to go; at 3, it has 4
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_points_of_what_can_be_counted_by_hand_are_exact(
    cover: Cover, target: Callable[[], Awaitable[None]], points: int, pairs: int
) -> None:
    found = cover(target)
    assert (found.points_found, found.points_covered) == (points, points)
    assert (found.pairs_found, found.pairs_covered) == (pairs, pairs)
    assert found.complete and not found.findings and not found.not_reached


if sys.version_info >= (3, 12):

    def test_eager_tasks_have_the_points_that_they_wait_at() -> None:
        def eager() -> asyncio.AbstractEventLoop:
            loop = asyncio.new_event_loop()
            loop.set_task_factory(asyncio.eager_task_factory)
            return loop

        found = everywhere(two_tasks, loop_factory=eager, raises=False)
        assert (found.points_found, found.points_covered, found.findings) == (2, 2, [])  # the other's resuming, ours


def test_steps_that_only_later_runs_have_are_points_too(cover: Cover) -> None:
    runs = 0

    async def longer_each_time() -> None:
        nonlocal runs
        runs += 1
        for _ in range(min(runs, 6)):
            await asyncio.sleep(0)

    found = cover(longer_each_time, pairs=False)
    assert (found.points_found, found.points_covered) == (7, 7)


def test_a_step_that_does_not_come_is_said_not_to_be_reached(cover: Cover) -> None:
    runs = 0

    async def long_twice() -> None:
        nonlocal runs
        runs += 1
        for _ in range(5 if runs < 3 else 1):
            await asyncio.sleep(0)

    found = cover(long_twice)
    assert (found.points_found, found.points_covered, found.not_reached) == (6, 2, 4)
    assert not found.complete and "4 not reached" in str(found)


def test_it_makes_its_own_loops() -> None:
    async def test() -> None:
        everywhere(three_steps)

    with pytest.raises(UsageError, match="not async"):
        asyncio.run(test())


class Deaf(asyncio.SelectorEventLoop):
    """Takes another call_soon, and does not use it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "call_soon":
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        pass


class Sealed(asyncio.SelectorEventLoop):
    @property
    def call_later(self) -> Any:
        return super().call_later


@pytest.mark.parametrize(("loop", "why"), [(Deaf, "of 9 known steps"), (Sealed, "call_later cannot be replaced")])
def test_a_loop_whose_steps_cannot_be_seen_fails_loudly(
    loop: Callable[[], asyncio.AbstractEventLoop], why: str
) -> None:
    """H16: a check that sees nothing would find nothing."""
    with pytest.raises(UsageError, match=why):
        everywhere(three_steps, loop_factory=loop)
