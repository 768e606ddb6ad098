"""What a coroutine leaves where it is cancelled is found, and named with its line; its correct form leaves nothing."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.testing.cancelling import plants, processes
from tests.testing.cancelling.covering import SHORT, Cover, Run, everywhere
from tests.testing.cancelling.plants import marked


@pytest.mark.parametrize(
    ("scenario", "at", "kinds"),
    [
        (plants.descriptor_between_open_and_try, plants.leave_descriptor, {"fd"}),
        (plants.leave_socket_to_the_collector, plants.leave_socket_to_the_collector, {"unclosed"}),
        (plants.thread_that_nobody_stops, plants.leave_thread, {"thread"}),
        (plants.temporary_file_that_stays, plants.leave_file, {"temp"}),
    ],
    ids=["descriptor", "socket", "thread", "temporary file"],
)
def test_what_a_cancelled_target_leaves_is_named_with_its_line(
    cover: Cover, scenario: Callable[..., Any], at: Callable[..., Any], kinds: set[str]
) -> None:
    """H03: descriptors, sockets, threads and temporary files of what was cancelled."""
    found = cover(scenario, settle=SHORT)
    assert [leak.points[-1].line for leak in found.leaks] == [marked(at)]
    assert {leak.kind for leak in found.leaks[0].leaks} == kinds
    assert found.findings == found.leaks


@pytest.mark.parametrize(
    "scenario",
    [
        processes.spawning(processes.end_what_could_not_bind),
        processes.reaping(processes.reap_out_of_reach),
        plants.listen_and_close,
        plants.close_descriptor,
        plants.close_socket,
        plants.stop_thread,
        plants.remove_file,
        plants.lock_that_is_released,
        plants.kept_item,
    ],
    ids="process reaping connection descriptor socket thread file lock item".split(),
)
def test_the_correct_form_of_each_fault_leaves_nothing(cover: Cover, scenario: Callable[..., Any]) -> None:
    found = cover(scenario)
    assert found.findings == [] and found.points_covered >= 2, str(found)


def test_a_process_that_was_registered_too_late_is_found(cover: Cover) -> None:
    """H01: alive, on nobody's list."""
    found = cover(processes.spawning(processes.register_after_bind), settle=SHORT)
    (leak,) = found.leaks
    assert leak.points[-1].line == marked(processes.register_after_bind)
    assert any(one.kind == "descendant" and "sleep 600" in one.what for one in leak.leaks)


def test_a_reap_that_a_second_cancel_abandons_is_found_by_pairs_only(cover: Cover) -> None:
    """H02: one cancel, and the clean-up does its work; a second one during it, and a zombie stays."""
    scenario = processes.reaping(processes.reap_in_line)
    assert cover(scenario, pairs=False).findings == []
    found = cover(scenario, settle=SHORT)
    assert found.findings and found.findings == found.leaks
    assert all(len(leak.points) == 2 and leak.points[1].line == marked(processes.reap) for leak in found.leaks)
    assert "never reaped" in str(found)


def test_tasks_that_a_library_left_running_are_found(cover: Cover) -> None:
    """H07: a listener is cancelled while it listens, which is for ever; sender and dispatcher go on."""
    found = cover(plants.listen_and_forget, settle=SHORT)
    assert found.leaks and {leak.points[-1].line for leak in found.leaks} == {marked(plants.listen_and_forget)}
    assert all([one.kind for one in leak.leaks] == ["task", "task"] for leak in found.leaks)
    assert "it waits for ever" in str(found)


def test_a_thread_that_still_works_for_a_cancelled_target_is_found() -> None:
    """H26: nobody can cancel a thread."""
    found = everywhere(lambda: plants.wait_in_a_thread(3 * SHORT), settle=SHORT, raises=False, pairs=False)
    assert found.leaks[0].points[-1].line == marked(plants.wait_in_a_thread)
    assert [one.kind for one in found.leaks[0].leaks] == ["thread"]


def test_a_process_that_outlives_its_awaiting_is_found(cover: Cover) -> None:
    """H08: cancelled while it waits, not only when there is something to wake it."""
    found = cover(processes.spawning(processes.wait_for_process), settle=0.05)
    (leak,) = [leak for leak in found.leaks if leak.points[-1].moment.after and len(leak.points) == 1]
    assert leak.points[0].line == marked(processes.wait_for_process)
    assert any(one.kind == "descendant" and "sleep 0.2" in one.what for one in leak.leaks)


@pytest.mark.parametrize(
    ("scenario", "at", "said"),
    [
        (plants.lock_that_stays_locked, plants.keep_lock, "the lock is still held"),
        (plants.lost_item, plants.lose_item, "the item is lost"),
    ],
    ids=["lock", "item"],
)
def test_what_a_scenario_asserts_is_checked_at_each_point(
    cover: Cover, scenario: Callable[..., Any], at: Callable[..., Any], said: str
) -> None:
    found = cover(scenario)
    assert [failed.points[-1].line for failed in found.failed] == [marked(at)]
    assert said in str(found) and found.findings == found.failed


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (plants.swallow, "returned instead"),
        (plants.turn_into_an_error, "raised OSError"),
        (plants.uncancel, "an uncancel() too many"),
    ],
)
def test_a_cancel_that_does_not_reach_its_asker_is_found(
    cover: Cover, target: Callable[[], Awaitable[None]], said: str
) -> None:
    """H32: whoever swallows a cancel, or turns it into an error, is named."""
    found = cover(target)
    assert [swallowed.points[-1].line for swallowed in found.swallowed] == [marked(target)]
    assert said in str(found) and found.findings == found.swallowed
    assert cover(target, allow_swallow=True).findings == []


def test_a_clean_up_that_hangs_is_found_with_the_line_at_which_it_stands(cover: Cover) -> None:
    found = cover(plants.hang_in_clean_up, bound=SHORT)
    assert [hang.points[-1].line for hang in found.hangs] == [marked(plants.hang_in_clean_up)]
    assert f"it stands at {marked(plants.hang_in_clean_up, '# hangs here')}" in str(found)
    assert found.findings == found.hangs


def test_a_scenario_whose_clean_up_hangs_is_found_too(cover: Cover) -> None:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Any]:
        ended = asyncio.Event()

        async def target() -> None:
            await asyncio.sleep(0)
            ended.set()

        yield target
        await ended.wait()

    found = cover(scenario, bound=SHORT, settle=SHORT)
    assert found.hangs and "the scenario's clean-up did not end" in str(found)


def test_waiting_with_a_limit_loses_a_cancel_only_on_old_pythons(cover: Cover) -> None:
    """Up to 3.11, `wait_for` gives a result that is there and forgets that it was cancelled."""

    async def scenario(run: Run) -> None:
        semaphore = asyncio.Semaphore(1)
        acquired = await run(lambda: asyncio.wait_for(semaphore.acquire(), 10))
        assert semaphore.locked() == bool(acquired)

    found = cover(scenario)
    assert bool(found.swallowed) == (sys.version_info < (3, 12)), str(found)
    assert found.findings == found.swallowed


def test_limits_groups_and_shields_work_inside_a_target(cover: Cover) -> None:
    """The cancels are real ones, so that `timeout` and `TaskGroup` tell them from their own."""

    async def target() -> None:
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
            group.create_task(asyncio.sleep(0.001))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))

    found = cover(target)
    assert found.findings == [] and found.points_covered == found.points_found > 10, str(found)
