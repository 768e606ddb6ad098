"""A stop ends within its ladder, joins those who ask again, and says what it saw."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.supervise.stopping import LAST_LOOK

from .conftest import alive, gone
from .loops import LOOPS, outcome, run_on, until

SHORT = quell.Ladder(ask=0.3, term=0.3)


@pytest.fixture(params=LOOPS)
def loop_factory(request: pytest.FixtureRequest) -> Any:
    return LOOPS[request.param]


async def stubborn(scope: quell.Scope) -> quell.Process:
    process = await scope.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60; sleep 60"], stdout=quell.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


def test_a_supervisor_is_stopped_before_during_and_after_its_start(loop_factory: Any) -> None:
    """H22: any half-started state can be stopped."""

    async def main() -> None:
        early = quell.Supervisor()
        assert (await early.stop()).confirmed
        with pytest.raises(quell.ScopeStoppedError):
            await early.__aenter__()

        for steps in range(6):
            sup = quell.Supervisor()
            starting = asyncio.ensure_future(sup.__aenter__())
            for _ in range(steps):
                await asyncio.sleep(0)
            receipt = await sup.stop()
            assert receipt.confirmed
            assert await outcome(starting) in ("ScopeStoppedError", "done")

        async with quell.Supervisor() as late:
            pass
        assert await late.stop() is await late.stop()
        with pytest.raises(quell.ScopeStoppedError):
            late.scope("x")

    run_on(loop_factory, main)


def test_a_start_that_is_cancelled_leaves_nothing(loop_factory: Any) -> None:
    """H22, H02: at any step, once or twice."""

    async def main() -> None:
        for cancels in (1, 2):
            for steps in range(5):
                sup = quell.Supervisor()
                starting = asyncio.ensure_future(sup.__aenter__())
                for _ in range(steps):
                    await asyncio.sleep(0)
                for _ in range(cancels):
                    starting.cancel()
                    await asyncio.sleep(0)
                if await outcome(starting) == "done":
                    await sup.stop()

    run_on(loop_factory, main)


def test_a_stop_is_joined_by_who_asks_again_and_forced_by_who_insists(loop_factory: Any) -> None:
    async def main() -> None:
        async with quell.Supervisor() as sup:
            scope = sup.scope("x")
            await stubborn(scope)
            began = time.monotonic()
            first = asyncio.ensure_future(scope.stop(grace=60))
            joining = asyncio.ensure_future(scope.stop())
            await asyncio.sleep(0.05)
            assert not first.done()
            forced = await scope.stop(force=True)
            assert forced is await first is await joining is await scope.stop()
            assert forced.confirmed and time.monotonic() - began < 20

    run_on(loop_factory, main)


def test_a_stop_of_the_outer_scope_takes_over_that_of_the_inner(loop_factory: Any) -> None:
    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            outer = sup.scope("outer")
            inner = outer.scope("inner")
            process = await stubborn(inner)
            slow = asyncio.ensure_future(inner.stop(grace=60))
            await asyncio.sleep(0.05)
            receipt = await outer.stop()
            assert receipt.confirmed and (await slow).confirmed and gone(process.pid)
            assert process.argv in [one.argv for one in receipt.processes]

    run_on(loop_factory, main)


def test_a_member_may_stop_its_own_scope(loop_factory: Any) -> None:
    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            scope = sup.scope("x")
            process = await scope.spawn(["sleep", "60"])

            async def member() -> None:
                await scope.stop(reason="enough")

            task = scope.task(member())
            receipt = await scope.stopped()
            assert receipt.confirmed and receipt.reason == "enough" and task.cancelled() and gone(process.pid)

            whole = sup.scope("y")
            whole.task(sup.stop(reason="all of it"))
            assert (await sup.stopped()).reason == "all of it"

    run_on(loop_factory, main)


def test_what_will_not_end_is_named_with_its_line(loop_factory: Any) -> None:
    """H17: unconfirmed, never a claim. H26: a thread cannot be ended."""

    async def main() -> None:
        release = asyncio.Event()
        blocked = threading.Event()

        async def deaf() -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        @contextlib.asynccontextmanager
        async def sticky() -> AsyncIterator[None]:
            yield
            await deaf()

        async with quell.Supervisor(ladder=SHORT) as sup:
            scope = sup.scope("x")
            task = scope.task(deaf(), name="deaf")
            await scope.enter(sticky())
            scope.task(asyncio.to_thread(blocked.wait))
            process = await scope.spawn(["sleep", "60"])
            await asyncio.sleep(0.05)
            began = time.monotonic()
            receipt = await scope.stop()
            seconds = time.monotonic() - began
            blocked.set()
            release.set()
            await task
        assert seconds < 10
        assert not receipt.confirmed and gone(process.pid) and receipt.survivors == []
        [named] = [one for one in receipt.tasks if one.end == "alive"]
        assert named.name == "deaf" and named.where is not None and "Event.wait" in named.where
        [closer] = [one for one in receipt.closers if one.end == "alive"]
        assert closer.where is not None and "Event.wait" in closer.where
        [thread] = [one for one in receipt.threads if one.end == "alive"]
        assert "wait" in thread.name and thread.where is not None and "threading.py" in thread.where
        sentence = receipt.sentence()
        assert "1 task would not end: deaf at" in sentence and "1 thread would not end" in sentence

    run_on(loop_factory, main)


def test_the_ladder_is_read_when_a_stop_begins(loop_factory: Any) -> None:
    async def main() -> None:
        async with quell.Supervisor() as sup:
            process = await stubborn(sup)
            sup.ladder = quell.Ladder(ask=0.1, term=0.1)
            began = time.monotonic()
            receipt = await process.stop()
            assert receipt.confirmed and 0.05 < receipt.phases["ask"] < 3 and time.monotonic() - began < 4

    run_on(loop_factory, main)


def test_scopes_stop_in_parallel(loop_factory: Any) -> None:
    """H24: the time does not grow with their number."""

    async def main() -> None:
        async with quell.Supervisor(ladder=quell.Ladder(term=0.5)) as sup:
            scopes = [sup.scope("session", box=index % 2 == 0) for index in range(8)]
            for scope in scopes:
                await stubborn(scope)
            began = time.monotonic()
            receipts = await asyncio.gather(*(scope.stop() for scope in scopes))
            assert all(receipt.confirmed for receipt in receipts)
            assert time.monotonic() - began < 3

    run_on(loop_factory, main)


def test_cancelling_who_asked_for_a_stop_changes_nothing(loop_factory: Any) -> None:
    """H02."""

    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            for steps in range(5):
                scope = sup.scope("x")
                process = await stubborn(scope)
                asker = asyncio.ensure_future(scope.stop())
                for _ in range(steps):
                    await asyncio.sleep(0)
                asker.cancel()
                asker.cancel()
                assert await outcome(asker) == "cancelled"
                if steps == 0:
                    assert scope.stopping is None  # it never ran
                    await scope.stop()
                assert (await scope.stopped()).confirmed and gone(process.pid)

    run_on(loop_factory, main)


def test_a_task_that_a_process_holds_up_ends_with_the_process(loop_factory: Any) -> None:
    """A thread reads from the process: it cannot be cancelled, and ends when the process is gone."""

    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            scope = sup.scope("x")
            read, write = os.pipe()
            process = await scope.spawn(["sleep", "60"], stdout=write)
            os.close(write)
            scope.task(asyncio.to_thread(os.read, read, 1))
            await asyncio.sleep(0.05)
            receipt = await scope.stop()
            os.close(read)
            assert receipt.confirmed and gone(process.pid)

    run_on(loop_factory, main)


def test_nothing_is_kept_of_what_has_ended(loop_factory: Any, state_dir: Path) -> None:
    """H09: maps are back to their size."""

    async def main() -> None:
        async with quell.Supervisor() as sup:
            for _ in range(30):
                scope = sup.scope("once", box=True)
                process = await scope.spawn(["true"])
                await process.wait()
                scope.task(asyncio.sleep(0))
                await scope.stop()
            hub = sup._shared.hub
            assert await until(lambda: not hub._fds and not hub._boxes and not hub._due and not hub._ended)
            assert not sup.nested() and not sup.processes and not sup.members() and not sup._shared.stops
            assert len(hub.zygote._boxes) <= 2 and len(list((state_dir / "ledger").iterdir())) <= 2
        assert [one.name for one in (state_dir / "supervisors").iterdir()] == [".lock"]

    run_on(loop_factory, main)


def test_the_stop_of_a_scope_with_nothing_in_it_takes_no_time(loop_factory: Any) -> None:
    async def main() -> None:
        async with quell.Supervisor() as sup:
            began = time.monotonic()
            receipt = await sup.scope("empty").stop()
            assert receipt.confirmed and time.monotonic() - began < LAST_LOOK

    run_on(loop_factory, main)


def test_an_orphan_of_a_scope_is_ended_with_it(loop_factory: Any) -> None:
    """H11: a daemon that its command left behind."""

    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            scope = sup.scope("x")
            process = await scope.spawn(["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & true"])
            await process.wait()
            [orphan] = await process.tree()
            other = await sup.spawn(["sleep", "60"])
            assert (await scope.stop()).confirmed and gone(orphan.pid) and alive(other.pid)

    run_on(loop_factory, main)
