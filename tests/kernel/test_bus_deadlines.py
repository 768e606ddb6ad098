"""A handler is never its worker's end: late, deaf or cancelled, the next event is handled; a stop ends all of it."""

import asyncio
import contextvars
import logging

import pytest

from quell.events import Event
from quell.kernel import sweeper
from quell.kernel.handling import Handling
from quell.kernel.subscription import Subscription
from quell.supervise.ownership import CURRENT
from tests.supervise.loops import until

from .buses import Heard, Run, forever, text
from .buses import run as run  # the fixture


def errors(heard: Heard) -> list[str]:
    return [getattr(event, "error", "") for event in heard.said]


def test_a_handler_past_its_deadline_is_cancelled_and_the_next_event_is_handled(run: Run) -> None:
    async def body(heard: Heard) -> None:
        ends: list[str] = []

        async def handler(event: Event) -> None:
            task = asyncio.current_task()
            assert task is not None and not task.cancelling()  # nothing of the last one's cancel is left
            try:
                if text(event) == "late":
                    await forever(event)
            finally:
                ends.append(text(event))

        heard.bus.subscribe(handler, kinds=["message."], name="slow", deadline=0.05)
        began = asyncio.get_running_loop().time()
        for said in ("late", "good", "late", "good"):
            heard.say(said)
        await heard.bus.drained()
        took = asyncio.get_running_loop().time() - began
        assert ends == ["late", "good", "late", "good"] and 0.1 <= took < 2
        late = "TimeoutError: took longer than 0.05 s over message.user, and was cancelled"
        assert errors(heard) == [late, late]

    run(body)


def test_the_deadline_of_the_bus_is_read_when_it_is_used(run: Run) -> None:
    async def body(heard: Heard) -> None:
        heard.bus.subscribe(forever, kinds=["message."])
        heard.say("")
        heard.bus.deadline = 0.02
        await heard.bus.drained()
        assert len(heard.said) == 1

    run(body)


def test_a_handler_that_waits_less_than_its_deadline_each_time_is_never_late(run: Run) -> None:
    """The deadline is of one event, not of the queue, and what ends in time is not cancelled afterwards."""

    async def body(heard: Heard) -> None:
        got: list[str] = []

        async def handler(event: Event) -> None:
            await asyncio.sleep(0.03)
            got.append(text(event))

        heard.bus.subscribe(handler, deadline=0.3)
        for number in range(12):
            heard.say(str(number))
        await heard.bus.drained()
        assert len(got) == 12 and heard.said == []

    run(body)


def test_a_handler_that_swallows_its_cancel_is_given_up_and_another_worker_goes_on(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "ABANDON", 0.05)

    async def body(heard: Heard) -> None:
        caplog.clear()
        gate = asyncio.Event()
        got: list[str] = []

        async def deaf(event: Event) -> None:
            got.append(text(event))
            while text(event) == "deaf" and not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    got.append("swallowed")

        failures: list[str] = []

        def failed(_: Subscription, error: BaseException) -> None:
            failures.append(type(error).__name__)

        heard.bus.subscribe(deaf, kinds=["message."], name="deaf", deadline=0.05, failed=failed)
        for said in ("deaf", "second", "third"):
            heard.say(said)
        await heard.bus.drained()
        assert got == ["deaf", "swallowed", "second", "third"] and failures == ["TimeoutError"]
        assert caplog.records[-1].message == (
            "deaf does not end although it was cancelled, over message.user: given up"
        )
        gate.set()
        assert await until(lambda: not heard.bus.sweeper.armed and not heard.bus._scope.roots)
        assert got == ["deaf", "swallowed", "second", "third"] and failures == ["TimeoutError"]

    run(body)


def test_a_worker_that_was_given_up_takes_nothing_more_from_the_queue(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H30: else two of them would work on one session at once."""
    monkeypatch.setattr(sweeper, "ABANDON", 0.02)

    async def body(heard: Heard) -> None:
        gates = {"deaf": asyncio.Event(), "second": asyncio.Event()}
        got: list[str] = []

        async def handler(event: Event) -> None:
            while (gate := gates.get(text(event))) is not None and not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue
            got.append(text(event))

        heard.bus.subscribe(handler, kinds=["message."], deadline=0.4)
        for said in ("deaf", "second", "third"):
            heard.say(said)
        assert await until(lambda: len(heard.bus._scope.roots) == 2)  # the second has begun with another worker
        gates["deaf"].set()
        assert await until(lambda: len(heard.bus._scope.roots) == 1)
        assert got == ["deaf"]
        gates["second"].set()
        await heard.bus.drained()
        assert got == ["deaf", "second", "third"]

    run(body)


def test_a_handler_that_swallows_its_cancel_and_returns_has_failed_once(run: Run) -> None:
    async def body(heard: Heard) -> None:
        told: list[str] = []

        async def handler(event: Event) -> None:
            try:
                await forever(event)
            except asyncio.CancelledError:
                if text(event) == "worse":
                    raise ValueError("in its clean-up") from None

        def failed(_: Subscription, error: BaseException) -> None:
            told.append(type(error).__name__)

        heard.bus.subscribe(handler, deadline=0.02, failed=failed, done=lambda _: told.append("done"))
        heard.say("")
        heard.say("worse")
        await heard.bus.drained()
        assert told == ["TimeoutError", "TimeoutError"]

    run(body)


def test_a_stop_cancels_handlers_without_a_false_error(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """H32: cancellation propagates, and nobody is blamed."""

    async def body(heard: Heard) -> None:
        ends: list[str] = []
        told: list[BaseException] = []

        async def handler(event: Event) -> None:
            try:
                await forever(event)
            except asyncio.CancelledError:
                ends.append(event.session)
                raise

        heard.bus.subscribe(handler, failed=lambda _, error: told.append(error))
        one = heard.bus.subscribe(handler)
        for session in "ab":
            heard.say("runs", session)
            heard.say("waits", session)
        await asyncio.sleep(0)
        receipt = await heard.bus._scope.stop()
        assert receipt.confirmed and sorted(ends) == ["a", "a", "b", "b"]
        heard.say("nobody's")
        assert heard.said == [] and told == [] and one.closed and not one.cut
        await heard.bus.drained()

    caplog.set_level(logging.WARNING)
    run(body)
    assert not caplog.records


def test_a_handler_that_swallows_the_cancel_of_a_stop_is_the_last_of_its_worker(run: Run) -> None:
    """H32: the stop gets what it asked for as soon as the handler lets go."""

    async def body(heard: Heard) -> None:
        got: list[str] = []

        async def deaf(event: Event) -> None:
            got.append(text(event))
            try:
                await forever(event)
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)

        heard.bus.subscribe(deaf)
        for number in range(100):
            heard.say(str(number))
        await asyncio.sleep(0)
        receipt = await heard.bus._scope.stop()
        assert receipt.confirmed and got == ["0"]

    run(body)


def test_something_cancelled_within_a_handler_is_neither_its_end_nor_an_error(run: Run) -> None:
    """H32: what the handler waited for was cancelled by somebody, and the worker was not."""

    async def body(heard: Heard) -> None:
        got: list[str] = []

        async def handler(event: Event) -> None:
            got.append(text(event))
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner

        heard.bus.subscribe(handler)
        heard.say("first")
        heard.say("second")
        await heard.bus.drained()
        assert got == ["first", "second"] and heard.said == []

    run(body)


def test_a_worker_that_somebody_cancels_loses_no_event(run: Run) -> None:
    """H32: before its first step, idle or at work; the others go on."""

    async def body(heard: Heard) -> None:
        got: list[str] = []

        async def handler(event: Event) -> None:
            if text(event) == "stuck":
                await forever(event)
            got.append(text(event))

        heard.bus.subscribe(handler)
        scope = heard.bus._scope
        for steps in range(4):
            got.clear()
            for said in ("stuck", "second", "third"):
                heard.say(said)
            for _ in range(steps):
                await asyncio.sleep(0)
            for task in list(scope.roots):
                task.cancel()
            if not steps:  # never begun: the first event is still there
                await asyncio.sleep(0.01)
                for task in list(scope.roots):
                    task.cancel()
            await heard.bus.drained()
            assert got == ["second", "third"]
            for task in list(scope.roots):  # idle
                task.cancel()
            heard.say("fourth")
            await heard.bus.drained()
            assert got == ["second", "third", "fourth"]

    run(body)


def test_a_handler_runs_in_the_scope_that_was_given_and_ends_with_it(run: Run) -> None:
    async def body(heard: Heard) -> None:
        scope = heard.sup.scope("plugin")
        owners: list[object] = []

        async def handler(event: Event) -> None:
            owners.append(CURRENT.get())
            await forever(event)

        one = heard.bus.subscribe(handler, scope=scope)
        other = heard.bus.subscribe(handler)
        heard.say("")
        assert await until(lambda: len(owners) == 2)
        assert set(owners) == {scope, heard.bus._scope}
        await scope.stop()
        heard.say("")
        assert one.closed and not other.closed and heard.said == []

    run(body)


def test_closing_a_subscription_inside_its_handler_lets_the_handler_finish(run: Run) -> None:
    async def body(heard: Heard) -> None:
        got: list[str] = []

        async def once(event: Event) -> None:
            subscription.close()
            await asyncio.sleep(0)
            got.append(text(event))

        subscription = heard.bus.subscribe(once)
        heard.say("first")
        heard.say("second")
        assert await until(lambda: got == ["first"] and not heard.bus._scope.roots)

    run(body)


def test_no_timer_runs_while_nothing_does(run: Run) -> None:
    async def body(heard: Heard) -> None:
        async def handler(event: Event) -> None:
            pass

        one = heard.bus.subscribe(handler)
        armed = [heard.bus.sweeper.armed]
        heard.say("")
        armed.append(heard.bus.sweeper.armed)
        assert armed == [False, True]
        assert await until(lambda: not heard.bus.sweeper.armed)
        assert isinstance(one, Handling) and not one.idle and not one.workers

    run(body)


def test_a_loop_that_stood_still_is_nobodys_missed_deadline(run: Run) -> None:
    async def body(heard: Heard) -> None:
        async def handler(event: Event) -> None:
            await asyncio.sleep(0.3)

        heard.bus.subscribe(handler, deadline=0.6)
        heard.say("")
        await asyncio.sleep(0.2)  # seen by the sweeper
        blocked = asyncio.get_running_loop().time() + 0.7
        while asyncio.get_running_loop().time() < blocked:
            pass
        await heard.bus.drained()
        assert heard.said == []

    run(body)


def test_handlers_see_the_context_of_who_subscribed(run: Run) -> None:
    """Not that of whoever happens to publish first."""
    word = contextvars.ContextVar("word", default="nobody's")

    async def body(heard: Heard) -> None:
        got: list[str] = []

        async def handler(event: Event) -> None:
            got.append(word.get())

        word.set("subscriber's")
        heard.bus.subscribe(handler)
        word.set("publisher's")
        heard.say("")
        await heard.bus.drained()
        assert got == ["subscriber's"]

    run(body)
