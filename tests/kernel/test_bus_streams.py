"""A stream gives its one reader every event from the moment that it was made, in order, and never delays anybody."""

import asyncio

import pytest

from quell.errors import UsageError
from quell.events import SubscriberCut
from tests.supervise.loops import outcome, until

from .buses import Heard, Run, text
from .buses import run as run  # the fixture


def test_a_stream_begins_when_it_is_made_not_when_it_is_read(run: Run) -> None:
    async def body(heard: Heard) -> None:
        heard.say("before")
        stream = heard.bus.stream()
        heard.say("after")
        await asyncio.sleep(0)
        assert text(await anext(stream)) == "after"

    run(body)


def test_a_snapshot_and_what_follows_have_no_gap_between_and_nothing_twice(run: Run) -> None:
    """H36: whenever it is taken."""

    async def body(heard: Heard) -> None:
        count = 0

        async def count_up() -> None:
            nonlocal count
            for _ in range(50):
                count += 1
                heard.say(str(count))
                await asyncio.sleep(0)

        counting = heard.sup.task(count_up())
        for _ in range(20):
            await asyncio.sleep(0)
            seen, stream = heard.bus.subscribe_with(lambda: count, kinds=["message.user"])
            async with stream:
                assert seen > 0 and text(await anext(stream)) == str(seen + 1)
        await counting

        def broken() -> int:
            raise LookupError

        with pytest.raises(LookupError):
            heard.bus.subscribe_with(broken)
        assert not heard.bus._general

    run(body)


def test_a_stream_drains_what_it_has_when_the_bus_closes_and_ends(run: Run) -> None:
    async def body(heard: Heard) -> None:
        stream, waiting = heard.bus.stream(), heard.bus.stream(kinds=["tool."])
        ending = asyncio.ensure_future(anext(waiting, None))
        heard.say("one")
        heard.say("two")
        await asyncio.sleep(0)
        heard.bus.close()
        assert [text(event) async for event in stream] == ["one", "two"]
        assert await ending is None and not stream.cut

    run(body)


def test_a_stream_that_is_closed_ends_at_once_for_its_reader(run: Run) -> None:
    async def body(heard: Heard) -> None:
        async with heard.bus.stream() as stream:
            reading = asyncio.ensure_future(anext(stream, None))
            await asyncio.sleep(0)
            stream.close()
            assert await reading is None
        async with heard.bus.stream() as stream:
            heard.say("unread")
        assert [event async for event in stream] == []
        assert not heard.bus._general

    run(body)


def test_a_stream_that_is_not_read_is_cut_and_keeps_what_it_had(run: Run) -> None:
    """H39: bounded, with an event, and the others hear everything in order."""

    async def body(heard: Heard) -> None:
        first, stalled, last = heard.bus.stream(), heard.bus.stream(limit=3, name="stalled"), heard.bus.stream()
        for number in range(5):
            heard.say(str(number))
        assert stalled.cut == "more than 3 events waited to be read"
        assert [text(event) async for event in stalled] == ["0", "1", "2"]
        assert await until(lambda: len(heard.said) == 1)
        cut = heard.said[0]
        assert isinstance(cut, SubscriberCut) and (cut.subscriber, cut.missed) == ("stalled", 1)
        for stream in (first, last):
            assert [(await anext(stream)).kind for _ in range(6)] == ["message.user"] * 5 + ["subscriber.cut"]

    run(body)


def test_a_stream_has_one_reader(run: Run) -> None:
    async def body(heard: Heard) -> None:
        stream = heard.bus.stream()
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        with pytest.raises(UsageError, match="has a reader already"):
            await anext(stream)
        heard.say("for the first")
        assert text(await reading) == "for the first"
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        reading.cancel()
        assert await outcome(reading) == "cancelled"
        heard.say("for the next")
        assert text(await anext(stream)) == "for the next"

    run(body)
