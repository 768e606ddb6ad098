"""A thread that a scope runs cannot be ended: while it runs it is on the receipt with its line, and never else."""

import asyncio
import functools
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest

import quell

from .loops import run_on, until
from .owned import AT_ONCE, EVERY_LOOP, QUICK, Body, MakeLoop, Run, forever, in_a_thread, run_within

Runner = Callable[[Callable[[], object]], Coroutine[Any, Any, object]]


async def to_thread(call: Callable[[], object]) -> object:
    return await asyncio.to_thread(call)


async def run_in_executor(call: Callable[[], object]) -> object:
    return await asyncio.get_running_loop().run_in_executor(None, call)


async def run_in_executor_and_look_away(call: Callable[[], object]) -> object:
    asyncio.get_running_loop().run_in_executor(None, call)
    await forever()
    return None


async def run_sync_of_anyio(call: Callable[[], object]) -> object:
    return await anyio.to_thread.run_sync(call)


async def run_sync_of_anyio_abandoned(call: Callable[[], object]) -> object:
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


RUNNERS: list[Runner] = [
    to_thread,
    run_in_executor,
    run_in_executor_and_look_away,
    run_sync_of_anyio,
    run_sync_of_anyio_abandoned,
]
each_runner = pytest.mark.parametrize("runner", RUNNERS, ids=lambda runner: runner.__name__)


@pytest.fixture(params=EVERY_LOOP)
def make(request: pytest.FixtureRequest) -> MakeLoop:
    return EVERY_LOOP[request.param]


@pytest.fixture
def run(make: MakeLoop) -> Run:
    """Runs a test inside a supervisor, on each loop."""

    def within(body: Body) -> None:
        run_within(make, body)

    return within


class Call:
    """What a thread runs, until it is let go."""

    def __init__(self) -> None:
        self.running = False
        self.let_go = False

    def stuck(self) -> None:
        self.running = True
        while not self.let_go:
            time.sleep(0.001)
        self.running = False


@each_runner
def test_a_thread_that_still_runs_is_named_with_its_line(run: Run, runner: Runner) -> None:
    """H26: a thread cannot be cancelled. H17: so the stop is unconfirmed."""

    async def body(sup: quell.Supervisor) -> None:
        scope, sibling = sup.scope("x"), sup.scope("y")
        mine, theirs = Call(), Call()
        scope.task(runner(mine.stuck))
        sibling.task(runner(theirs.stuck))
        assert await until(lambda: mine.running and theirs.running)
        began = time.monotonic()
        receipt = await scope.stop()
        seconds = time.monotonic() - began
        mine.let_go = theirs.let_go = True
        assert await until(lambda: not mine.running and not theirs.running)

        assert not receipt.confirmed and seconds < AT_ONCE
        [thread] = receipt.threads
        assert thread.end == "alive" and thread.where is not None
        assert "test_threads.py:" in thread.where and thread.where.endswith("in Call.stuck")
        assert "1 thread would not end" in receipt.sentence() and "in Call.stuck" in receipt.sentence()

    run(body)


@each_runner
def test_a_thread_that_ends_in_time_is_none_that_would_not(run: Run, runner: Runner) -> None:
    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x")
        call = Call()

        async def root() -> None:
            inner = asyncio.ensure_future(runner(call.stuck))
            try:
                await forever()
            finally:
                asyncio.get_running_loop().call_later(0.05, setattr, call, "let_go", True)
                inner.cancel()

        scope.task(root())
        assert await until(lambda: call.running)
        receipt = await scope.stop()
        assert receipt.confirmed, receipt.sentence()
        assert all(one.end != "alive" for one in receipt.threads)

    run(body)


@each_runner
def test_a_thread_that_waits_for_the_next_call_is_nobodys(run: Run, runner: Runner) -> None:
    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x")
        done: list[int] = []

        async def root() -> None:
            await runner(lambda: done.append(1))
            await forever()

        scope.task(root())
        assert await until(lambda: len(done) == 1)
        receipt = await scope.stop()
        assert receipt.confirmed and receipt.threads == []

    run(body)


def test_a_call_is_named_by_what_it_calls(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x")
        calls = [Call(), Call(), Call()]

        def with_a_function(_: Callable[[], object]) -> None:
            calls[1].stuck()

        scope.task(run_in_executor(functools.partial(Call.stuck, calls[0])))
        scope.task(run_in_executor(functools.partial(with_a_function, print)))
        scope.task(to_thread(functools.partial(Call.stuck, calls[2])))
        assert await until(lambda: all(call.running for call in calls))
        receipt = await scope.stop()
        for call in calls:
            call.let_go = True
        names = sorted(one.name.rpartition(".")[2] for one in receipt.threads)
        assert names == ["stuck", "stuck", "with_a_function"]

    run(body)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns a thousand times as often as usual: what can come in between does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_calls_that_end_by_the_thousand_during_a_stop_do_not_disturb_it(run: Run, quick_switches: None) -> None:
    """H17: calls end in their threads, on no turn of the loop, while the stop and its receipt look at them."""

    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x")
        begun: list[int] = []

        def call() -> None:
            begun.append(1)
            time.sleep(0.0001)

        async def root() -> None:
            loop = asyncio.get_running_loop()
            for _ in range(3000):
                loop.run_in_executor(None, call)
            await forever()

        scope.task(root())
        assert await until(lambda: len(begun) > 10)
        assert (await asyncio.wait_for(scope.stop(), AT_ONCE)).confirmed

    run(body)


@pytest.mark.parametrize("given", [False, True], ids=["by the loop", "by its user"])
def test_threads_of_an_executor_that_was_there_before_are_owned_too(make: MakeLoop, given: bool) -> None:
    """H26: a thread is on the receipt whether or not the loop had an executor before the supervisor came."""
    call = Call()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        if given:
            loop.set_default_executor(ThreadPoolExecutor(2, thread_name_prefix="given"))
        await asyncio.to_thread(lambda: None)
        async with quell.Supervisor(ladder=QUICK) as sup:
            scope = sup.scope("x")
            scope.task(asyncio.to_thread(call.stuck))
            assert await until(lambda: call.running)
            receipt = await scope.stop()
            call.let_go = True
            assert not receipt.confirmed and [one.end for one in receipt.threads] == ["alive"]

    in_a_thread(lambda: run_on(make, main))
