"""A scenario has a set-up, one target and a clean-up; only the target is cancelled, and it answers only for itself."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quell.errors import UsageError
from tests.testing.cancelling import plants, processes
from tests.testing.cancelling.covering import SHORT, Cover, Run, three_steps


def test_what_a_cancelled_target_made_must_be_gone_at_once(cover: Cover) -> None:
    """H01: an owner that would end it later, with everything else, does not help."""

    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Any]:
        sleepers = processes.Sleepers()

        async def target() -> None:
            await sleepers.spawn()
            await asyncio.sleep(0)

        await sleepers.spawn()  # the set-up's own is no leak
        yield target
        await sleepers.end()

    found = cover(scenario, settle=SHORT)
    assert len(found.leaks) == 1 and "when the target had ended" in str(found)
    assert len([one for one in found.leaks[0].leaks if one.kind == "descendant"]) == 1


def test_what_a_target_that_was_not_cancelled_made_is_its_scenarios(cover: Cover) -> None:
    async def target() -> int:
        await asyncio.sleep(0)
        reader, writer = os.pipe()
        os.close(writer)
        return reader

    async def scenario(run: Run) -> None:
        reader = await run(target)
        if reader is not None:
            os.close(reader)

    assert cover(scenario).findings == []


def test_a_target_that_leaks_by_itself_is_said_to(cover: Cover) -> None:
    left: list[asyncio.Task[bool]] = []

    async def target() -> None:
        left.append(asyncio.ensure_future(asyncio.Event().wait()))

    found = cover(target, settle=SHORT)
    assert found.leaks[0].points == () and "without any cancel" in str(found)
    assert ":0 " in found.leaks[0].command


def test_an_error_of_the_target_itself_is_the_callers(cover: Cover) -> None:
    async def target() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        cover(target)


@pytest.mark.parametrize("times", [0, 2])
def test_a_scenario_has_one_target(cover: Cover, times: int) -> None:
    async def scenario(run: Run) -> None:
        for _ in range(times):
            await run(three_steps)

    with pytest.raises(UsageError, match="target"):
        cover(scenario)


def test_a_scenario_that_gives_nothing_to_await_is_refused(cover: Cover) -> None:
    async def forgot_the_decorator() -> AsyncIterator[Any]:
        yield three_steps

    with pytest.raises(UsageError, match="async context manager"):
        cover(forgot_the_decorator)


def test_what_fails_after_a_cancel_at_rest_is_a_finding(cover: Cover) -> None:
    async def scenario(run: Run) -> None:
        await run(asyncio.Event().wait)
        raise LookupError("lost")

    found = cover(scenario)
    assert found.failed and "LookupError('lost')" in str(found)


def test_a_coroutine_may_be_given_as_it_is(cover: Cover) -> None:
    async def scenario(run: Run) -> None:
        await run(three_steps())

    assert cover(scenario).points_covered == 3


def test_what_is_ignored_is_no_leak(cover: Cover) -> None:
    assert cover(plants.thread_that_nobody_stops, settle=SHORT, ignore="thread *").findings == []
    assert cover(plants.thread_that_nobody_stops, settle=SHORT, kinds=["task", "fd"]).findings == []
    assert cover(plants.leave_socket_to_the_collector, ignore="unclosed *").findings == []


def test_a_target_that_goes_on_for_ever_is_covered_as_far_as_the_budget_goes(cover: Cover) -> None:
    async def target() -> None:
        for _ in range(10_000):
            await asyncio.sleep(0.01)

    found = cover(target, budget=1.5)
    assert 0 < found.points_covered <= found.points_found
    assert "it still went on after 0.5 s" in str(found) and "the budget of 1.5 s is used up" in str(found)
