"""The bus hands every event to whoever wants it, in order per session and subscriber, and nobody can hold it up."""

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import Callable

import pytest

from quell.errors import BusClosedError, UsageError
from quell.events import Event, MessageUser, PluginEvent, RuntimeReady, SubscriberCut, ToolStarted
from quell.kernel.handling import Handling
from quell.kernel.subscription import Subscription
from tests.supervise.loops import outcome, until

from .buses import SHORT, Heard, Run, forever, text
from .buses import run as run  # the fixture


def test_events_come_in_order_for_each_session_and_subscriber(run: Run) -> None:
    async def body(heard: Heard) -> None:
        got: dict[str, list[tuple[str, str]]] = {"quick": [], "slow": []}

        async def quick(event: Event) -> None:
            got["quick"].append((event.session, text(event)))

        async def slow(event: Event) -> None:
            await asyncio.sleep(0.001 * (int(text(event)) % 3))
            got["slow"].append((event.session, text(event)))

        heard.bus.subscribe(quick)
        heard.bus.subscribe(slow)
        for number in range(20):
            for session in "abc":
                heard.say(str(number), session)
        await heard.bus.drained()
        for name in got:
            for session in "abc":
                assert [said for of, said in got[name] if of == session] == [str(number) for number in range(20)]

    run(body)


def test_a_slow_handler_delays_neither_other_subscribers_nor_its_own_other_sessions(run: Run) -> None:
    async def body(heard: Heard) -> None:
        gate = asyncio.Event()
        got: list[str] = []

        async def stuck_in_one(event: Event) -> None:
            if event.session == "slow":
                await gate.wait()
            got.append(f"one {event.session}")

        async def other(event: Event) -> None:
            got.append(f"two {event.session}")

        heard.bus.subscribe(stuck_in_one)
        heard.bus.subscribe(other)
        heard.say("", "slow")
        heard.say("", "fast")
        assert await until(lambda: len(got) == 3)
        assert sorted(got) == ["one fast", "two fast", "two slow"]
        gate.set()
        await heard.bus.drained()
        assert got[-1] == "one slow"

    run(body)


def test_kinds_are_exact_or_prefixes_and_a_session_may_be_named(run: Run) -> None:
    async def body(heard: Heard) -> None:
        streams = {
            "all": heard.bus.stream(),
            "tool.": heard.bus.stream(kinds=["tool."]),
            "message.user": heard.bus.stream(kinds=["message.user"]),
            "message": heard.bus.stream(kinds=["message"]),
            "x.p.": heard.bus.stream(kinds=["x.p."]),
            "of b": heard.bus.stream(session="b"),
            "tools of b": heard.bus.stream(kinds=["tool."], session="b"),
            "of none": heard.bus.stream(session=""),
        }
        heard.emit(MessageUser(session="a"))
        heard.emit(ToolStarted(request=1, session="b"))
        heard.emit(PluginEvent(plugin="p", name="hello"))
        heard.emit(PluginEvent(plugin="q", name="hello", session="b"))
        assert {name: len(stream) for name, stream in streams.items()} == {
            "all": 4, "tool.": 1, "message.user": 1, "message": 0, "x.p.": 1, "of b": 2, "tools of b": 1, "of none": 1,
        }  # fmt: skip

    run(body)


def test_a_handler_may_publish_on_its_own_session(run: Run) -> None:
    """H30: publishing from a handler only enqueues."""

    async def body(heard: Heard) -> None:
        got: list[str] = []

        async def echo(event: Event) -> None:
            said = text(event)
            if said == "first":
                heard.say("second")
                got.append("published")
            got.append(said)

        heard.bus.subscribe(echo)
        heard.say("first")
        await heard.bus.drained()
        assert got == ["published", "first", "second"]

    run(body)


def test_a_handler_that_feeds_itself_leaves_the_loop_to_others(run: Run) -> None:
    """H30: one that never waits, and always has a next event, still lets others run."""

    async def body(heard: Heard) -> None:
        async def again(event: Event) -> None:
            heard.say("again")

        subscription = heard.bus.subscribe(again)
        heard.say("first")
        for _ in range(10):
            await asyncio.sleep(0)
        subscription.close()
        await heard.bus.drained()

    run(body)


def test_what_is_published_on_a_closed_bus_is_refused(run: Run) -> None:
    """H33: it raises, whatever the kind and whether or not somebody listened."""

    async def body(heard: Heard) -> None:
        heard.bus.subscribe(forever)
        heard.say("heard")
        heard.bus.close()
        heard.bus.close()
        for event in (MessageUser(session="s"), RuntimeReady(), PluginEvent(plugin="p", name="n")):
            with pytest.raises(BusClosedError, match=r"message\.user|runtime\.ready|x\.p\.n"):
                heard.bus.publish(event)
        attempts: list[Callable[[], object]] = [
            lambda: heard.bus.subscribe(forever),
            heard.bus.stream,
            lambda: heard.bus.waiter(1),
        ]
        for attempt in attempts:
            with pytest.raises(BusClosedError):
                attempt()

    run(body)


def test_what_is_dropped_at_the_close_is_one_record_by_kind(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """H33"""

    async def body(heard: Heard) -> None:
        heard.bus.subscribe(forever)
        heard.bus.subscribe(forever, session="s")
        heard.say("runs")
        await asyncio.sleep(0)
        for _ in range(3):
            heard.say("waits")
        heard.emit(ToolStarted(request=1, session="s"))
        heard.bus.close()

    caplog.set_level(logging.WARNING)
    run(body)
    assert [record.message for record in caplog.records] == [
        "the bus was closed before these were handled: message.user ×6, tool.started ×2"
    ]


def test_a_bus_that_is_drained_drops_nothing(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def body(heard: Heard) -> None:
        got: list[str] = []

        async def slow(event: Event) -> None:
            await asyncio.sleep(0.001)
            got.append(text(event))

        heard.bus.subscribe(slow)
        for number in range(5):
            heard.say(str(number))
        await asyncio.gather(heard.bus.drained(), heard.bus.drained())
        heard.bus.close()
        assert got == list("01234")
        for _ in range(3):
            await asyncio.sleep(0)
        assert not heard.bus._scope.roots  # nor does it leave its idle workers to the sweeper

    run(body)
    assert not caplog.records


def test_of_two_equal_handlers_the_one_that_is_meant_is_removed(run: Run) -> None:
    """H37: handles are compared by identity, and closing one twice removes no other."""

    class Equal:
        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        def __hash__(self) -> int:
            return 1

        async def __call__(self, event: Event) -> None:
            got.append(self.name)

    got: list[str] = []

    async def body(heard: Heard) -> None:
        got.clear()
        for session in (None, "s"):
            heard.bus.subscribe(Equal("first"), session=session)
            second = heard.bus.subscribe(Equal("second"), session=session)
            heard.bus.subscribe(Equal("third"), session=session)
            second.close()
            second.close()
        heard.say("")
        await heard.bus.drained()
        assert sorted(got) == ["first", "first", "third", "third"]

    run(body)


def test_a_success_between_failures_is_told(run: Run) -> None:
    """H38: 2 bad, 1 good, 1 bad are never three in a row: who counts hears of each, in order."""

    async def body(heard: Heard) -> None:
        heads: list[str] = []

        async def handler(event: Event) -> None:
            if text(event) == "bad":
                raise ValueError("bad")

        def failed(which: Subscription, error: BaseException) -> None:
            assert which is subscription
            heads.append(type(error).__name__)

        subscription = heard.bus.subscribe(handler, failed=failed, done=lambda which: heads.append("done"))
        for said in ("bad", "bad", "good", "bad"):
            heard.say(said)
        await heard.bus.drained()
        assert heads == ["ValueError", "ValueError", "done", "ValueError"]
        assert heard.said == []  # who counts them tells of them

    run(body)


def test_a_stalled_subscriber_is_cut_off_with_an_event_and_delays_nobody(run: Run) -> None:
    """H39: its queue is bounded over all of its sessions, and a stop of it takes no longer."""

    async def body(heard: Heard) -> None:
        got: list[str] = []

        async def fine(event: Event) -> None:
            got.append(event.kind)

        stalled = heard.bus.subscribe(forever, limit=10, name="stalled")
        heard.bus.subscribe(fine)
        cuts = heard.bus.stream(kinds=["subscriber.cut"])
        for number in range(5):
            heard.say("runs", f"s{number}")
        await asyncio.sleep(0)
        for number in range(11):
            assert not stalled.cut
            heard.say("waits", f"s{number % 5}")
        assert stalled.cut == "more than 10 events waited for its handler"
        cut = await anext(cuts)
        assert isinstance(cut, SubscriberCut)
        assert (cut.subscriber, cut.reason, cut.missed) == ("stalled", stalled.cut, 11)
        await heard.bus.drained()
        assert got == ["message.user"] * 16 + ["subscriber.cut"]
        heard.say("no more of it")
        began = asyncio.get_running_loop().time()
        receipt = await heard.sup.stop()
        assert receipt.confirmed and asyncio.get_running_loop().time() - began < SHORT.ask

    run(body)


def test_a_subscriber_that_keeps_up_is_never_cut(run: Run) -> None:
    """H39: what counts is what waits, not what came."""

    async def body(heard: Heard) -> None:
        got = 0

        async def quick(event: Event) -> None:
            nonlocal got
            got += 1

        subscription = heard.bus.subscribe(quick, limit=3)
        for _ in range(20):
            for session in "abc":
                heard.say("", session)
            await heard.bus.drained()
        assert got == 60 and not subscription.cut

    run(body)


def test_a_handler_subscribed_to_errors_that_fails_breeds_no_errors(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """H41: an error handler that raises is one record, no cascade, no silence; every error names its type."""

    async def body(heard: Heard) -> None:
        caplog.clear()

        async def bad(event: Event) -> None:
            raise KeyError

        heard.bus.subscribe(bad, name="bad")
        heard.say("")
        await heard.bus.drained()
        await asyncio.sleep(0)
        await heard.bus.drained()
        assert [getattr(event, "error", "") for event in heard.said] == ["KeyError"]
        assert [record.message for record in caplog.records] == [
            "bad failed over message.user: KeyError",
            "bad failed over plugin.error: KeyError",
        ]

    run(body)


def test_a_hook_or_a_journal_that_raises_is_one_record(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """H41"""

    async def body(heard: Heard) -> None:
        caplog.clear()
        got: list[str] = []

        async def handler(event: Event) -> None:
            got.append(text(event))
            if text(event) == "bad":
                raise ValueError("bad")

        def hook(*_: object) -> None:
            raise RuntimeError("the hook")

        def refuse(_: Event) -> None:
            raise OSError("the disk")

        one = heard.bus.subscribe(handler, name="one", failed=hook, done=hook)
        heard.say("bad")
        heard.say("good")
        await heard.bus.drained()
        one.close()
        heard.bus.subscribe(handler, name="two")
        heard.bus.emit = refuse
        heard.bus.publish(MessageUser(text="bad"))
        heard.bus.publish(MessageUser(text="good"))
        await heard.bus.drained()
        assert got == ["bad", "good"] * 2
        assert [record.message for record in caplog.records] == [
            "one failed over message.user: ValueError: bad",
            "after a failure, what counts those of one raised RuntimeError: the hook",
            "after a success, what counts those of one raised RuntimeError: the hook",
            "two failed over message.user: ValueError: bad",
            "plugin.error could not be emitted: OSError: the disk",
        ]

    run(body)


def test_nothing_is_kept_for_sessions_that_are_over(run: Run) -> None:
    async def body(heard: Heard) -> None:
        async def handler(event: Event) -> None:
            await asyncio.sleep(0)

        subscription = heard.bus.subscribe(handler)

        async def kept_after(count: int) -> int:
            for number in range(count):
                heard.say("", f"session {number}")
                if number % 100 == 0:
                    await heard.bus.drained()
            await heard.bus.drained()
            assert await until(lambda: not heard.bus.sweeper.armed and not heard.bus._scope.roots)  # no timer, no task
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            kept = [await kept_after(300)]
            for _ in range(3):  # what grows once, a table say, is not kept for each
                kept.append(await kept_after(10_000))
                if kept[-1] - kept[-2] < 5_000:
                    break
        finally:
            tracemalloc.stop()
        assert isinstance(subscription, Handling)
        assert not subscription.lanes and not subscription.workers and not subscription.idle
        assert kept[-1] - kept[-2] < 5_000, kept  # not half a byte for each

    run(body)


def test_a_subscription_for_a_session_leaves_nothing_when_it_is_closed(run: Run) -> None:
    async def body(heard: Heard) -> None:
        streams = [heard.bus.stream(session=f"s{number}") for number in range(100)]
        for stream in streams:
            stream.close()
        assert not heard.bus._particular and not heard.bus._general

    run(body)


def test_one_waiter_for_each_request_and_none_without_a_number(run: Run) -> None:
    async def body(heard: Heard) -> None:
        heard.bus.waiter(7)
        for seq in (7, 0):
            with pytest.raises(UsageError):
                heard.bus.waiter(seq)
        heard.bus.forget(7)
        heard.bus.forget(7)
        waiting = heard.bus.waiter(7)
        heard.bus.close()
        assert await outcome(waiting.wait()) == "BusClosedError"

    run(body)
