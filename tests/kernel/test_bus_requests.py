"""A reply resolves its waiter when it is published, and no cycle of requests can lock."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
import pytest

import quell
from quell.events import ApprovalAnswered, ApprovalAsked, Event, MessageUser, ToolEnded, ToolRequested, ToolStarted
from quell.kernel.bus import Bus
from quell.testing import cancel_everywhere
from tests.supervise.loops import LOOPS, outcome, until

from .buses import SHORT, Heard, Run, ended, forever
from .buses import run as run  # the fixture

KINDS = ("task", "thread", "socket")
"""What is counted: the supervisor around it makes keepers ahead of need meanwhile."""


def test_a_request_gets_the_event_that_ends_it(run: Run) -> None:
    async def body(heard: Heard) -> None:
        async def tool(event: Event) -> Event:
            heard.emit(ToolStarted(request=event.seq))  # belongs to the request, and does not end it
            heard.emit(ToolEnded(request=event.seq + 1000))  # somebody else's
            return ended(event)

        heard.bus.respond("tool.requested", tool)
        request = heard.request()
        answer = await heard.bus.request(request, timeout=5)
        assert isinstance(answer, ToolEnded) and answer.request == request.seq
        assert not heard.bus._waiters

    run(body)


def test_a_kind_that_opens_nothing_is_answered_by_whatever_names_it(run: Run) -> None:
    async def body(heard: Heard) -> None:
        async def tool(event: Event) -> Event:
            return ToolStarted(request=event.seq)

        heard.bus.respond("message.user", tool)
        assert isinstance(await heard.bus.request(MessageUser(seq=5)), ToolStarted)

    run(body)


def test_handlers_may_ask_each_other_in_circles(run: Run) -> None:
    """H31: on the same session, and s1 → s2 → s1; the reply passes no queue whose worker waits."""

    async def body(heard: Heard) -> None:
        answers: list[Event] = []

        async def tool(event: Event) -> Event:
            assert isinstance(event, ToolRequested)
            if event.tool:  # ask on, in the session that the next word names
                first, _, rest = event.tool.partition(" ")
                heard.seq += 1
                await heard.bus.request(ToolRequested(seq=heard.seq, session=first, tool=rest), timeout=5)
            return ended(event)

        async def handler(event: Event) -> None:
            heard.seq += 1
            request = ToolRequested(seq=heard.seq, session=event.session, tool="s2 s1")
            answers.append(await heard.bus.request(request, timeout=5))

        heard.bus.respond("tool.requested", tool)
        heard.bus.subscribe(handler, kinds=["message.user"])
        heard.say("same session", "s1")
        heard.say("the other way", "s2")
        await heard.bus.drained()
        assert [answer.session for answer in answers] == ["s1", "s2"]
        assert heard.said == []

    run(body)


def test_an_approval_can_be_asked_inside_a_tool_handler(run: Run) -> None:
    """H31: the one who answers is a handler of the same session, behind the same bus."""

    async def body(heard: Heard) -> None:
        got: list[bool] = []

        async def tool(event: Event) -> None:
            heard.seq += 1
            asked = ApprovalAsked(seq=heard.seq, session=event.session)
            answer = await heard.bus.request(asked, timeout=5)
            got.append(isinstance(answer, ApprovalAnswered) and answer.allow)

        async def person(event: Event) -> None:
            heard.emit(ApprovalAnswered(request=event.seq, session=event.session, allow=True))

        heard.bus.subscribe(tool, kinds=["message.user"])
        heard.bus.subscribe(person, kinds=["approval."])
        heard.say("do it")
        heard.say("and again")
        assert await until(lambda: got == [True, True])

    run(body)


def test_a_request_that_nobody_answers_times_out_with_a_sentence(run: Run) -> None:
    async def body(heard: Heard) -> None:
        with pytest.raises(TimeoutError, match=r"nobody answered tool\.requested within 0\.01 s"):
            await heard.bus.request(heard.request(), timeout=0.01)
        assert not heard.bus._waiters

    run(body)


def test_closing_the_bus_fails_whoever_waits(run: Run) -> None:
    """H33: nobody waits for an answer that cannot come."""

    async def body(heard: Heard) -> None:
        asking = asyncio.ensure_future(heard.bus.request(heard.request()))
        await asyncio.sleep(0)
        heard.bus.close()
        assert await outcome(asking) == "BusClosedError"
        assert await outcome(heard.bus.request(heard.request())) == "BusClosedError"

    run(body)


def test_a_responder_that_fails_is_told_of_and_runs_again(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """H41: the error names its type. H35: the request can still be answered by somebody else."""

    async def body(heard: Heard) -> None:
        calls = 0

        async def tool(event: Event) -> Event | None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise LookupError
            return ended(event) if calls == 3 else None

        heard.bus.respond("tool.requested", tool, name="tool")
        for late in (True, True, False):
            request = heard.request()
            asking = asyncio.ensure_future(heard.bus.request(request, timeout=5))
            if late:
                assert await until(lambda: calls > 0)
                await asyncio.sleep(0)
                assert not asking.done()
                heard.emit(ended(request))
            assert isinstance(await asking, ToolEnded)
        assert [getattr(event, "error", "") for event in heard.said] == ["LookupError"]

    run(body)


def test_a_responder_ends_with_the_scope_that_it_runs_in(run: Run) -> None:
    """H32: and that is no error."""

    async def body(heard: Heard) -> None:
        scope = heard.sup.scope("plugin")

        async def tool(event: Event) -> Event | None:
            await forever(event)
            return None

        responding = heard.bus.respond("tool.requested", tool, scope=scope)
        heard.bus.publish(heard.request())
        await asyncio.sleep(0)
        assert len(scope.roots) == 1
        await scope.stop()
        heard.bus.publish(heard.request())
        assert responding.closed and heard.said == []

    run(body)


def test_a_reply_that_names_no_request_is_a_warning_at_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """H34: it cannot be built; one that comes from elsewhere is a warning that names kind and source."""

    async def body(heard: Heard) -> None:
        with pytest.raises(ValueError, match="must name its request"):
            ToolEnded(request=0)
        broken = ToolEnded(request=1, source="tool:odd")
        msgspec.structs.force_setattr(broken, "request", 0)
        heard.bus.publish(broken)
        assert [(record.levelname, record.message) for record in caplog.records] == [
            ("WARNING", "tool.ended from tool:odd answers without saying which request: nobody can get it")
        ]
        caplog.clear()

    run(body)


def test_a_late_reply_is_a_debug_record(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """H34"""

    async def body(heard: Heard) -> None:
        caplog.clear()
        request = heard.request()
        waiting = heard.bus.waiter(request.seq, request.opens)
        for _ in range(2):
            heard.bus.publish(ended(request))
        assert waiting.known
        assert [(record.levelname, record.message) for record in caplog.records if record.name == "quell"] == [
            ("DEBUG", f"nobody waits, or waits any more, for tool.ended of request {request.seq}")
        ]

    caplog.set_level(logging.DEBUG, logger="quell")
    run(body)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_that_is_cancelled_anywhere_leaves_nothing(loop: str) -> None:
    """H02: no waiter, no task."""

    async def scenario(run: Callable[[Awaitable[object]], Awaitable[object]]) -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            bus = Bus(sup.scope("bus"))

            async def tool(event: Event) -> Event:
                await asyncio.sleep(0)
                return ended(event)

            bus.respond("tool.requested", tool)
            await run(bus.request(ToolRequested(seq=1, session="s"), timeout=5))
            assert not bus._waiters
            bus.close()

    cancel_everywhere(scenario, budget=1.5, kinds=KINDS, loop_factory=LOOPS[loop], quiet=True)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_reader_that_is_cancelled_anywhere_leaves_nothing_and_loses_nothing(loop: str) -> None:
    """H02: what it had not read is still there."""

    async def scenario(run: Callable[[Awaitable[object]], Awaitable[object]]) -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            bus = Bus(sup.scope("bus"))
            stream = bus.stream()
            got: list[Event] = []

            async def publish() -> None:
                for number in range(4):
                    bus.publish(MessageUser(text=str(number)))
                    await asyncio.sleep(0)

            async def read() -> None:
                while len(got) < 4:
                    got.append(await anext(stream))

            publishing = sup.task(publish())
            try:
                await run(read())
            finally:
                await publishing
                bus.close()
                got.extend([event async for event in stream])
                assert [getattr(event, "text", "") for event in got] == list("0123")
                assert not bus._general

    cancel_everywhere(scenario, budget=1.5, kinds=KINDS, loop_factory=LOOPS[loop], quiet=True)
