"""Orders cross from the front's loop to the kernel's; what is not taken up never runs, and a stop needs no loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from quell.errors import ScopeStoppedError, UsageError
from quell.events import AdmissionClosed, Event, MessageUser, StopReceipt, StopRequested, TurnEnded
from quell.kernel.runtime import Runtime
from quell.ports import PluginContext
from quell.surfaces.http.bridge import Bridge
from quell.surfaces.http.faults import BusyError
from tests.kernel.cast import STUBBORN, Stage, live
from tests.supervise.conftest import alive
from tests.supervise.loops import until

from .house import Front, apart

T = TypeVar("T")
Begin = Callable[[Coroutine[Any, Any, Any]], asyncio.Future[Any]]
BLOCKED = 15.0
"""Seconds that the kernel's loop is blocked if nobody is answered meanwhile. The ladder is 0.3 + 0.3."""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def play(stage: Stage, main: Callable[[Runtime, Bridge, Begin], Awaitable[None]]) -> None:
    """The kernel in this thread's loop, the front in one of its own."""

    async def whole(rt: Runtime) -> None:
        with Front() as front:
            await main(rt, Bridge(rt, rt.scope("front")), front.begin)

    stage.play(whole)


def block(seconds: float) -> float:
    """Whatever holds the kernel's loop up. When it ended."""
    time.sleep(seconds)
    return time.monotonic()


def test_an_order_runs_in_the_kernels_thread_and_its_result_comes_back(stage: Stage) -> None:
    async def main(rt: Runtime, bridge: Bridge, begin: Begin) -> None:
        async def order(rt: Runtime) -> tuple[str, int]:
            await asyncio.sleep(0)
            return rt.state_dir, threading.get_ident()

        async def wrong(_: Runtime) -> None:
            raise UsageError("it makes no sense")

        assert await begin(bridge.ask(order)) == (rt.state_dir, threading.get_ident())
        with pytest.raises(UsageError, match="makes no sense"):
            await begin(bridge.ask(wrong))
        assert bridge._orders == set()

    play(stage, main)


def test_an_order_that_is_not_taken_up_in_time_is_withdrawn_and_never_runs(stage: Stage) -> None:
    """H25: the front answers while the kernel's loop is blocked, and what it gave up does not come later."""
    ran: list[str] = []

    async def main(rt: Runtime, bridge: Bridge, begin: Begin) -> None:
        async def order(_: Runtime) -> None:
            ran.append("late")

        async def ask() -> float:
            with pytest.raises(BusyError, match=r"did not take this up within 0\.1 s"):
                await bridge.ask(order, limit=0.1)
            return time.monotonic()

        asked = begin(ask())
        went_on = block(0.6)
        assert await asked < went_on
        assert await begin(bridge.turns())
        assert ran == []

    play(stage, main)


def test_whether_the_kernels_loop_turns_is_known_in_half_a_second(stage: Stage) -> None:
    async def main(rt: Runtime, bridge: Bridge, begin: Begin) -> None:
        async def look() -> tuple[bool, float]:
            began = time.monotonic()
            return await bridge.turns(0.3), time.monotonic() - began

        asked = begin(look())
        block(0.8)
        turns, seconds = await asked
        assert not turns and seconds < 0.6
        assert (await begin(look()))[0]

    play(stage, main)


def test_letting_go_of_an_order_that_was_taken_up_breaks_nothing_off(stage: Stage) -> None:
    """H20: a client that disconnects is no reason to stop half way."""

    async def main(rt: Runtime, bridge: Bridge, begin: Begin) -> None:
        begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def order(_: Runtime) -> None:
            begun.set()
            await go_on.wait()
            done.set()

        asked = begin(bridge.ask(order))
        await begun.wait()
        asked.cancel()
        assert await begin(bridge.turns())
        go_on.set()
        async with asyncio.timeout(5):
            await done.wait()

    play(stage, main)


def test_an_asker_that_is_gone_before_its_order_was_taken_up_withdraws_it(stage: Stage) -> None:
    ran: list[str] = []

    async def main(rt: Runtime, bridge: Bridge, begin: Begin) -> None:
        async def order(_: Runtime) -> None:
            ran.append("late")

        async def ask() -> None:
            async with asyncio.timeout(0.1):
                await bridge.ask(order)

        asked = begin(ask())
        block(0.5)
        with pytest.raises(TimeoutError):
            await asked
        assert await begin(bridge.turns())
        assert ran == []

    play(stage, main)


def test_closing_answers_everybody_who_waits_and_whoever_comes_later(stage: Stage) -> None:
    """H65: none of the requests that are in flight at the end hangs."""
    ran: list[str] = []

    async def main(rt: Runtime, bridge: Bridge, begin: Begin) -> None:
        begun = asyncio.Event()

        async def endless(_: Runtime) -> None:
            begun.set()
            await asyncio.get_running_loop().create_future()

        async def late(_: Runtime) -> None:
            ran.append("late")

        under_way = begin(bridge.ask(endless))
        await begun.wait()
        queued = begin(bridge.ask(late))
        time.sleep(0.2)  # noqa: ASYNC251  so that it waits in the queue of a loop that does not turn
        bridge.close()
        for asked in (under_way, queued, begin(bridge.ask(late)), begin(bridge.stop(None, "all", "stop"))):
            with pytest.raises(ScopeStoppedError, match="the server stops"):
                await asked
        assert ran == []

    play(stage, main)


def test_what_is_under_way_when_the_runtime_stops_is_answered(stage: Stage) -> None:
    """H65: an order is told that the runtime stops; a stop has its receipt."""
    answers: list[object] = []

    async def whole() -> None:
        with Front() as front:
            async with stage.runtime() as rt:
                bridge = Bridge(rt, rt.scope("front"))
                session = await rt.open("scripted", stage.cwd)
                session.send(f"$ {' '.join(STUBBORN[:2])} '{STUBBORN[2]}'".replace("trap ''", 'trap ""'))
                await until(lambda: bool(session.processes()))

                async def endless(_: Runtime) -> None:
                    await asyncio.get_running_loop().create_future()

                order = front.begin(bridge.ask(endless))
                stop = front.begin(bridge.stop(session.id, "session", "by hand", 1.0))
                assert await front.begin(bridge.turns())
            with pytest.raises(ScopeStoppedError):
                await order
            receipt = await stop
            answers.append(receipt)
            assert receipt.confirmed and receipt.reason == "by hand"
            with pytest.raises(ScopeStoppedError):
                await front.begin(bridge.stop(session.id, "session", "too late"))

    stage.run(whole)
    assert len(answers) == 1


@pytest.mark.parametrize("reach", ["turn", "session", "all"])
def test_a_stop_has_its_receipt_while_a_handler_blocks_the_kernels_loop(
    stage: Stage, reach: Any, tmp_path: Path
) -> None:
    """H25: the trees are gone and the asker has the receipt, long before the loop turns again; then it is recorded."""
    answered_first: list[bool] = []
    blocks, answered = threading.Event(), threading.Event()

    async def blocking(event: Event) -> None:
        if isinstance(event, MessageUser) and event.text == "block":
            blocks.set()
            answered_first.append(answered.wait(BLOCKED))  # which blocks the loop

    def part(ctx: PluginContext) -> None:
        ctx.on("message.user", blocking)

    stage.parts.append(part)

    async def main(rt: Runtime) -> None:
        async with apart(rt, tmp_path) as (house, begin):
            session = await rt.open("scripted", stage.cwd)
            other = await rt.open("scripted", stage.cwd)
            session.send("$ setsid sleep 77 & sleep 78")
            assert await until(lambda: bool(session.processes()))
            [command] = session.processes()
            assert await until_async(lambda: members(command), 3)
            pids = [one.pid for one in await command.process.tree()]

            async def stop() -> tuple[Any, list[int]]:
                assert await until(blocks.is_set)
                path, body = ("/stop", {}) if reach == "all" else (f"/sessions/{session.id}/stop", {"reach": reach})
                receipt = await house.post(path, body | {"reason": "by hand"})
                survivors = [pid for pid in pids if alive(pid)]
                answered.set()
                return receipt, survivors

            async def health() -> Any:
                assert await until(blocks.is_set)
                began = time.monotonic()
                return (await house.get("/health"))["status"], time.monotonic() - began

            other.send("block")
            after = rt.host.journal.last
            asked, looked = begin(stop()), begin(health())
            told, survivors = await asked
            assert answered_first == [True], "the answer came only when the loop turned"
            assert survivors == [] and told["receipt"]["survivors"] == []
            assert {one["pid"] for one in told["receipt"]["processes"]} >= set(pids)
            status, seconds = await looked
            assert status == "blocked" and seconds < 0.8
            await live(rt, StopReceipt, after=after)
            if reach == "all":
                assert not rt.admitting
                assert (await begin(house.get("/admission")))["open"] is False

    stage.play(main)
    asked = [one for one in stage.stops() if one.reach == reach]
    assert len(asked) == 1 and asked[0].reason == "by hand" and asked[0].source == "user"
    [receipt] = [one for one in stage.receipts() if one.request == asked[0].seq]
    assert receipt.confirmed
    seen = [one["pid"] for one in receipt.receipt["processes"]]
    assert len(seen) == len(set(seen)), "each is on the sum once"
    mine = [one for one in stage.of(StopRequested) if one.session and one.reason == "by hand"]
    assert len(mine) == 1 or reach == "all", "recorded once"
    assert {one.end for one in stage.of(TurnEnded) if one.reason == "by hand"} == {"stopped"}
    assert len(stage.of(AdmissionClosed)) == (1 if reach == "all" else 0)


def test_a_stop_that_the_loop_began_is_answered_when_a_handler_then_blocks_it(stage: Stage, tmp_path: Path) -> None:
    """H25: the handler hears of the stop, and is in its way."""
    answered_first: list[bool] = []
    answered = threading.Event()

    async def blocking(_: Event) -> None:
        answered_first.append(answered.wait(BLOCKED))

    stage.parts.append(lambda ctx: ctx.on("stop.requested", blocking))

    async def main(rt: Runtime) -> None:
        async with apart(rt, tmp_path) as (house, begin):
            session = await rt.open("scripted", stage.cwd)
            session.send("$ sleep 79")
            assert await until(lambda: bool(session.processes()))
            [command] = session.processes()

            async def stop() -> tuple[Any, bool]:
                receipt = await house.post(f"/sessions/{session.id}/stop")
                survives = alive(command.pid)
                answered.set()
                return receipt, survives

            told, survives = await begin(stop())
            assert answered_first == [True] and not survives and told["receipt"]["survivors"] == []
            assert command.pid in {one["pid"] for one in told["receipt"]["processes"]}

    stage.play(main)
    [asked] = stage.stops()
    assert len([one for one in stage.receipts() if one.request == asked.seq]) == 1  # the end of the block may ask too


async def members(command: Any) -> int:
    return len(await command.process.tree())


async def until_async(look: Callable[[], Awaitable[int]], count: int) -> bool:
    for _ in range(500):
        if await look() >= count:
            return True
        await asyncio.sleep(0.01)
    return False
