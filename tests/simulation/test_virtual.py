"""On a virtual loop time costs nothing, a seed gives one course of events, and who waits for ever is named."""

import asyncio
import time

import pytest

from quell.supervise import errand
from quell.testing import virtual


def test_a_day_passes_at_once() -> None:
    async def main() -> tuple[float, float]:
        loop_began, began = asyncio.get_running_loop().time(), time.monotonic()
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time() - loop_began, time.monotonic() - began

    real = time.monotonic()
    assert virtual.run(main) == pytest.approx((86_400, 86_400))
    assert time.monotonic() - real < 5


def test_timers_come_in_the_order_of_their_times() -> None:
    seen: list[int] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in (3, 1, 2):
                group.create_task(later(number))

    async def later(number: int) -> None:
        await asyncio.sleep(number)
        seen.append(number)

    virtual.run(main)
    assert seen == [1, 2, 3]


def test_who_waits_for_ever_is_named_with_the_line() -> None:
    async def main() -> None:
        await asyncio.gather(waiter())

    async def waiter() -> None:
        await asyncio.get_running_loop().create_future()  # the line

    with pytest.raises(virtual.Deadlock, match=r"nothing will be: 2 tasks are left") as found:
        virtual.run(main)
    assert "test_virtual.py" in str(found.value) and "waiter" in str(found.value)


def test_work_that_is_no_task_can_deadlock_too() -> None:
    async def main() -> None:
        fact: errand.Fact[None] = errand.Fact(asyncio.get_running_loop())
        await fact.insist()

    with pytest.raises(virtual.Deadlock, match=r"Fact\.wait"):
        virtual.run(main, turns=1000)


def test_a_loop_that_never_rests_is_given_up() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110  that is the fault
            await asyncio.sleep(0)

    with pytest.raises(virtual.Endless, match="turned 500 times"):
        virtual.run(main, turns=500)


def test_a_task_that_is_left_is_found() -> None:
    held: list[object] = []

    async def main() -> None:
        held.append(asyncio.create_task(asyncio.sleep(1000), name="forgotten"))

    with pytest.raises(virtual.Leftover, match="forgotten at"):
        virtual.run(main)


def test_a_failure_that_nobody_heard_is_found() -> None:
    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task

    async def fail() -> None:
        raise ValueError("unheard")

    with pytest.raises(virtual.Complaint, match="never retrieved: ValueError: unheard"):
        virtual.run(main)


def test_a_failure_where_nobody_can_catch_it_is_found() -> None:
    class Careless:
        def __del__(self) -> None:
            raise ValueError("too late")

    async def main() -> None:
        Careless()

    with pytest.raises(virtual.Complaint, match="ValueError: too late"):
        virtual.run(main)


def test_threads_are_simulated_and_cannot_be_cancelled() -> None:
    seen: list[str] = []

    async def main() -> int:
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(None, seen.append, "ran")
        await asyncio.sleep(0)
        future.cancel()
        answer = await loop.run_in_executor(None, lambda: 42)
        with pytest.raises(ValueError, match="thread"):
            await loop.run_in_executor(None, int, "thread")
        return answer

    assert virtual.run(main) == 42
    assert seen == ["ran"]


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def test_one_seed_gives_one_course_and_another_seed_another(shuffle: bool) -> None:
    def course(seed: int) -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def one(name: str) -> None:
            for _ in range(5):
                await asyncio.to_thread(lambda: None)
                seen.append((name, time.time()))

        async def main() -> None:
            waiting = {asyncio.create_task(one(str(number))) for number in range(8)}
            await asyncio.wait(set(waiting))
            seen.extend((task.get_name(), 0) for task in waiting)  # a set of tasks has an order too

        virtual.run(main, seed, step=0.0001, shuffle=shuffle)
        return seen

    courses = [course(seed) for seed in range(5)]
    assert courses == [course(seed) for seed in range(5)]
    assert len({str(each) for each in courses}) == 5


def test_a_timer_comes_due_between_callbacks_when_turns_take_time() -> None:
    """Else everything that is ready would always run to its end before any clock."""

    async def main() -> int:
        due = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.0005, due.set_result, None)
        turns = 0
        while not due.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert 3 < virtual.run(main, step=0.0001) < 1000


def test_the_clocks_are_real_again_afterwards() -> None:
    before = (time.time, time.monotonic, time.sleep, time.gmtime)

    async def main() -> str:
        time.sleep(60)  # noqa: ASYNC251  it only moves the clock
        return time.strftime("%Y", time.gmtime())

    assert virtual.run(main) == "2023"
    assert (time.time, time.monotonic, time.sleep, time.gmtime) == before
