"""SSE and WebSocket on real sockets: a snapshot or what is missing, then changes, with no gap and nothing twice."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from quell.errors import StoreError
from quell.events import AdmissionClosed, SessionClosed, SessionDeleted, SessionOpened, SessionRenamed
from quell.surfaces.http import client as clients
from quell.surfaces.http import outbox as outboxes
from quell.surfaces.http import streams
from quell.surfaces.http.faults import BusyError
from tests.supervise.loops import until

from .audience import BOUND, House, Log, Reader, Run, come_and_go, delta, dial, frame, handshake, said, texts
from .audience import run as run  # the fixture


async def spoken(house: House, kind: str, query: dict[str, Any]) -> Callable[[], Any]:
    """A client by either way, as a function that gives its next message."""
    if kind == "ws":
        talker = await house.ws(query)
        return talker.next
    words = [f"session={one}" for one in query.get("sessions", [])]
    words += [f"{name}={int(query[name])}" for name in ("after", "board", "events") if query.get(name) is not None]
    reader = await (await house.sse("&".join(words))).begin()

    async def following() -> Any:
        message = await reader.next()
        return None if message is None else message.data

    return following


BOTH = pytest.mark.parametrize("kind", ["sse", "ws"])


# -- snapshot, then changes


def test_a_client_without_a_cursor_gets_a_snapshot_and_then_what_comes(run: Run) -> None:
    """H36."""

    async def body(house: House) -> None:
        house.log.open("s1", "s2")
        reader = await (await house.sse()).begin()
        assert reader.status == 200 and reader.head["content-type"] == "text/event-stream"
        first = await reader.next()
        assert first is not None and (first.kind, first.id) == ("snapshot", 2)
        assert [one["id"] for one in first.data["sessions"]] == ["s1", "s2"] and first.data["admission"]["open"]
        house.log.say(said(0, "one"), said(0, "two", session="s2"))
        second = await reader.next()
        assert second is not None and (second.kind, second.id) == ("events", 4)
        assert second.data == {
            "type": "events",
            "seq": 4,
            "events": [json.loads(one.body) for one in house.log.rows[2:]],
        }
        await reader.leave()

    run(body)


@BOTH
def test_whenever_a_client_comes_it_misses_nothing_and_sees_nothing_twice(
    run: Run, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H36: with a cursor or without, whatever it follows, while events are written and streamed."""
    monkeypatch.setattr(clients, "PAGE", 7)

    async def body(house: House) -> None:
        log, chance = house.log, random.Random(5)
        log.open("s1", "s2", "s3")

        async def go_on() -> None:
            for number in range(400):
                session = chance.choice(["s1", "s2", "s3"])
                log.say(said(0, session=session) if number % 5 == 0 else delta(0, f"{number} ", session=session))
                if number % 3 == 0:
                    await asyncio.sleep(0.001)

        async def follow(delay: float) -> None:
            await asyncio.sleep(delay)
            after = chance.choice([None, 0, log.last // 2, log.last])
            wanted = chance.choice([["s1", "s2", "s3"], ["s2"], ["s1", "s3"]])
            following = await spoken(house, kind, {"sessions": wanted, "after": after})
            if after is None:
                after = (await following())["seq"]
            heard, seq = [], after
            while seq < ends[-1]:
                message = await following()
                assert message["type"] == "events"
                if message["events"]:
                    assert [one["seq"] for one in message["events"]] == sorted(one["seq"] for one in message["events"])
                    assert seq < message["events"][0]["seq"] and message["seq"] == message["events"][-1]["seq"]
                heard += message["events"]
                seq = message["seq"]
            whole = [json.loads(row.body) for row in log.rows if row.seq > after and row.session in wanted]
            assert [one for one in heard if one["kind"] != "message.delta"] == [
                one for one in whole if one["kind"] != "message.delta"
            ]
            for session in wanted:
                assert texts([one for one in heard if one["session"] == session]) == texts(
                    [one for one in whole if one["session"] == session]
                )

        ends = [10**9]
        following = [asyncio.create_task(follow(number * 0.01)) for number in range(16)]
        await go_on()
        log.say(*(said(0, "end", session=session) for session in ("s1", "s2", "s3")))
        ends.append(log.last - 2)
        await asyncio.gather(*following)

    run(body)


def test_a_client_goes_on_after_the_last_event_that_it_has(run: Run) -> None:
    async def body(house: House) -> None:
        house.log.open("s1")
        house.log.say(*(said(0, str(number)) for number in range(1300)))
        # What a browser sends when it reconnects is newer than what its address says.
        reader = await (await house.sse("after=3", "Last-Event-ID: 100")).begin()
        heard = await reader.heard(1201)
        assert [one["seq"] for one in heard] == list(range(101, 1302))
        house.log.say(said(0))
        assert [one["seq"] for one in await reader.heard(1)] == [1302]
        await reader.leave()

    run(body)


def test_what_happens_while_a_client_catches_up_comes_after_that(run: Run) -> None:
    async def body(house: House) -> None:
        house.log.open("s1", "s2")
        house.log.say(*(said(0, session=f"s{number % 2 + 1}") for number in range(1500)))

        async def meanwhile() -> None:
            house.log.say(said(0), said(0, session="s2"), delta(0, "x"))

        house.log.reading = meanwhile
        reader = await (await house.sse("after=0&session=s1&session=s2")).begin()
        heard = await reader.heard(1502)
        while heard[-1]["seq"] < house.log.last:
            heard += await reader.heard(1)
        durable = [one["seq"] for one in heard if one["kind"] != "message.delta"]
        assert durable == [one.seq for one in house.log.rows if one.kind != "message.delta"]
        assert house.log.reads >= 4
        await reader.leave()

    run(body)


def test_too_much_at_once_for_a_client_that_catches_up_is_read_from_the_log(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not cut off: it reads at its own pace."""
    monkeypatch.setattr(outboxes, "ENTRIES", 100)

    async def body(house: House) -> None:
        house.log.open("s1")
        storms = 3

        async def storm() -> None:
            nonlocal storms
            storms -= 1
            if storms >= 0:
                house.log.say(*(said(0) for _ in range(150)))

        house.log.reading = storm
        reader = await (await house.sse("after=0")).begin()
        assert [one["seq"] for one in await reader.heard(451)] == list(range(1, 452))
        house.log.say(said(0))
        assert (await reader.heard(1))[0]["seq"] == 452
        await reader.leave()

    run(body)


def test_a_cursor_that_is_ahead_of_the_feed_is_met_there(run: Run) -> None:
    """Whoever got the number of its message by another way may be quicker than the feed."""

    async def body(house: House) -> None:
        house.log.open("s1")
        late = house.log.write(said(0, "late"), said(0, "later"))
        reader = await (await house.sse("after=2&session=s1")).begin()
        assert await until(lambda: len(house.feed) == 1)
        house.feed.take([(one, row.body) for one, row in zip(late, house.log.rows[1:], strict=True)])
        house.log.say(said(0, "latest"))
        assert [one["text"] for one in await reader.heard(2)] == ["later", "latest"]
        house.log.say(said(0, "last"))
        assert [one["text"] for one in await reader.heard(1)] == ["last"]
        await reader.leave()

    run(body)


def test_a_cursor_of_another_log_gets_a_snapshot(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "AHEAD_LIMIT", 0.05)

    async def body(house: House) -> None:
        house.log.open("s1")
        talker = await house.ws({"after": 500})
        first = await talker.next()
        assert (first["type"], first["seq"]) == ("snapshot", 1)
        house.log.say(said(0))
        assert [one["seq"] for one in (await talker.next())["events"]] == [2]
        await talker.leave()

    run(body)


def test_a_client_follows_some_sessions_also_one_that_is_not_there_yet(run: Run) -> None:
    async def body(house: House) -> None:
        house.log.open("abcdef", "s2")
        talker = await house.ws({"sessions": ["abcd", "new", "the s2"]})  # by prefix, by id, by title
        assert [one["id"] for one in (await talker.next())["sessions"]] == ["abcdef", "s2"]
        house.log.open("new", "other")
        house.log.say(said(0, session="abcdef"), AdmissionClosed(reason="x"), said(0, session="s2"))
        assert [one["session"] for one in (await talker.next())["events"]] == ["new", "abcdef", "s2"]
        await talker.leave()

    run(body)


def test_of_a_deleted_session_it_is_said_that_it_was(run: Run) -> None:
    async def body(house: House) -> None:
        house.log.open("s1")
        house.log.say(said(0), said(0), SessionDeleted(session="s1", events=3))
        del house.log.rows[:3]
        talker = await house.ws({"sessions": ["s1"], "after": 1})
        assert [one["kind"] for one in (await talker.next())["events"]] == ["session.deleted"]
        await talker.leave()

    run(body)


# -- the board


def test_cards_come_as_they_change_and_no_more_often_than_they_may(run: Run) -> None:
    async def body(house: House) -> None:
        names = [f"s{number:04}" for number in range(1000)]
        house.log.open(*names)
        talker = await house.ws({"board": True, "events": False})
        assert len((await talker.next())["sessions"]) == 1000
        loop, began, times, cards = asyncio.get_running_loop(), asyncio.get_running_loop().time(), [], 0
        for number in range(60):
            house.log.say(delta(0, str(number), session=names[number % 3]))
            await asyncio.sleep(0.01)
        house.log.say(SessionRenamed(session="s0500", title="last"))
        while True:
            message = await talker.next()
            assert message["type"] == "cards" and message["admission"]["open"]
            times.append(loop.time())
            cards += len(message["cards"])
            assert {one["id"] for one in message["cards"]} <= {"s0000", "s0001", "s0002", "s0500"}
            if any(one["title"] == "last" for one in message["cards"]):
                break
        assert len(times) <= (loop.time() - began) / 0.1 + 2 and cards <= 4 * len(times)
        assert message["seq"] == house.log.last
        await talker.leave()

    run(body)


def test_admission_and_deleted_sessions_are_among_the_changes(run: Run) -> None:
    async def body(house: House) -> None:
        house.log.open("s1", "s2")
        talker = await house.ws({"board": True, "events": False})
        await talker.next()
        house.log.say(AdmissionClosed(reason="enough"))
        message = await talker.next()
        assert message["cards"] == message["removed"] == [] and message["admission"]["reason"] == "enough"
        house.log.say(SessionClosed(session="s2"), SessionDeleted(session="s1"))
        message = await talker.next()
        assert [one["id"] for one in message["cards"]] == ["s2"] and message["removed"] == ["s1"]
        house.log.say(SessionRenamed(session="s2", title="new"))
        message = await talker.next()
        assert [one["title"] for one in message["cards"]] == ["new"] and message["removed"] == []
        await talker.leave()

    run(body)


@BOTH
def test_the_seq_of_a_snapshot_is_what_its_stream_goes_on_after(run: Run, kind: str) -> None:
    """H36: whoever breaks off after the snapshot, and before what it missed, goes on from where it was."""

    async def body(house: House) -> None:
        house.log.open("s1")
        house.log.say(said(0), said(0))
        following = await spoken(house, kind, {"sessions": ["s1"], "after": 1, "board": True})
        first = await following()
        assert (first["type"], first["seq"]) == ("snapshot", 1) and len(first["sessions"][0]["queue"]) == 2
        assert [one["seq"] for one in (await following())["events"]] == [2, 3]

    run(body)


def test_a_card_that_changes_often_is_sent_to_a_slow_client_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "BUSY", 0.01)

    async def body(house: House) -> None:
        house.log.open("s1")
        busy = 20

        async def reading() -> None:
            nonlocal busy
            busy -= 1
            if busy > 0:
                raise BusyError("busy")

        house.log.reading = reading
        talker = await house.ws({"sessions": ["s1"], "after": 0, "board": True})
        assert (await talker.next())["type"] == "snapshot"
        house.log.say(*(SessionRenamed(session="s1", title=str(number)) for number in range(50)))
        message = await talker.next()
        assert message["type"] == "cards" and [one["title"] for one in message["cards"]] == ["49"]
        heard = (await talker.next())["events"]
        heard += (await talker.next())["events"]
        assert len(heard) == 51
        await talker.leave()

    run(body)


# -- pace


def test_deltas_wait_a_little_for_more_and_everything_else_goes_at_once(run: Run) -> None:
    async def body(house: House) -> None:
        house.log.open("s1")
        talker, loop = await house.ws({"sessions": ["s1"]}), asyncio.get_running_loop()
        await talker.next()
        began = loop.time()
        for word in "abcdefghij":
            house.log.say(delta(0, word))
        [one] = (await talker.next())["events"]
        assert (one["text"], one["seq"]) == ("abcdefghij", house.log.last)
        assert loop.time() - began >= 0.02
        house.log.say(delta(0, "k"))
        began = loop.time()
        house.log.say(said(0))
        assert [one["kind"] for one in (await talker.next())["events"]] == ["message.delta", "message.user"]
        await talker.leave()

    run(body)


def test_a_quiet_stream_shows_that_it_lives(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BEAT", 0.05)

    async def body(house: House) -> None:
        house.log.open("s1")
        gate = asyncio.Event()

        async def reading() -> None:
            await gate.wait()

        house.log.reading = reading
        quiet = await (await house.sse()).begin()
        blocked = await (await house.sse("after=0")).begin()  # the log does not answer
        loop = asyncio.get_running_loop()
        loop.call_later(0.4, gate.set)
        loop.call_later(0.5, house.log.say, said(0))
        assert [one["seq"] for one in await quiet.heard(1)] == [2]
        assert [one["seq"] for one in await blocked.heard(2)] == [1, 2]
        assert quiet.beats >= 3 and blocked.beats >= 3
        await quiet.leave()
        await blocked.leave()

    run(body)


# -- slow clients


def stalled_log(log: Log, count: int, text: str) -> None:
    for _ in range(count):
        log.say(said(0, text))


def test_a_client_that_reads_too_slowly_is_cut_off_with_a_reason_and_can_go_on(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """H39: and nobody else is delayed."""

    async def body(house: House) -> None:
        log, loop = house.log, asyncio.get_running_loop()
        log.open("s1")
        slow = await (await house.sse("after=0", buffer=4096)).begin()
        quick = await (await house.sse("after=0")).begin()
        slow.pause()
        text, worst = "x" * 20_000, 0.0
        while not any("cut off" in one.message for one in caplog.records) or log.last < 500:
            began = loop.time()
            log.say(said(0, text))
            await quick.heard(1)
            worst = max(worst, loop.time() - began)
            if log.last == 600:
                break
        assert any(one.over for one in house.feed._outboxes), "it was not given up"
        assert sum(one.size for one in house.feed._outboxes) < outboxes.SIZE
        assert worst < 1.0
        slow.resume()
        seq, message = 0, await slow.next()
        while message is not None and message.kind == "events":
            assert message.data["events"][0]["seq"] == seq + 1
            assert message.id is not None
            seq, message = message.id, await slow.next()
        assert message is not None and message.kind == "cut" and message.data["seq"] == seq
        assert "waited to be taken: reconnect" in message.data["reason"]
        assert await slow.next() is None  # an end in order
        await slow.leave()
        again = await (await house.sse(f"after={seq}")).begin()
        assert [one["seq"] for one in await again.heard(log.last - seq)] == list(range(seq + 1, log.last + 1))
        for one in (again, quick):
            await one.leave()

    run(body)
    assert [one.levelname for one in caplog.records if "a client was cut off after event" in one.message] == ["WARNING"]


def test_a_websocket_that_is_cut_off_is_closed_with_the_code_for_later(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outboxes, "ENTRIES", 10)

    async def body(house: House) -> None:
        house.log.open("s1")
        talker = await house.ws({"sessions": ["s1"]})
        assert (await talker.next())["type"] == "snapshot"
        house.log.say(*(said(0) for _ in range(20)))
        message = await talker.next()
        assert (message["type"], message["seq"]) == ("cut", 1)
        code, reason = await talker.closed()
        assert code == 1013 and reason.startswith("more than 10 events waited")

    run(body)


@BOTH
def test_a_client_that_takes_nothing_at_all_is_cut_off_and_nothing_of_it_is_kept(
    run: Run, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """H39."""
    monkeypatch.setattr(clients, "SEND_LIMIT", 0.3)

    async def body(house: House) -> None:
        house.log.open("s1")
        stuck = await stuck_client(house, kind)
        assert await house.empty()
        stuck.close()

    run(body)
    assert any("it did not take a message within" in one.message for one in caplog.records)


async def stuck_client(house: House, kind: str) -> asyncio.StreamWriter:
    """One that has asked for everything and reads nothing, with messages on their way."""
    if kind == "sse":
        one: Any = await (await house.sse("after=0", buffer=4096)).begin()
        writer: asyncio.StreamWriter = one._writer
    else:
        reader, writer = await asyncio.open_connection(sock=await dial(house.port, 4096))
        writer.write(handshake(house.port, []))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frame(b'{"after":0}'))
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    assert await until(lambda: len(house.feed) == 1)
    for _ in range(40):
        house.log.say(said(0, "x" * 200_000))
        await asyncio.sleep(0.005)
    return writer


# -- ends


@BOTH
def test_streams_end_with_a_reason_within_a_second_when_the_server_stops(run: Run, kind: str) -> None:
    async def body(house: House) -> None:
        house.log.open("s1")
        stuck = await stuck_client(house, kind)
        following = await spoken(house, kind, {"after": house.log.last - 1})
        assert (await following())["type"] == "events"
        waiting = await house.ws()  # has not said anything yet
        loop = asyncio.get_running_loop()
        began = loop.time()
        house.feed.end("the server stops")
        house.feed.end("another word")
        while (last := await following())["type"] != "bye":
            pass
        assert last == {"type": "bye", "reason": "the server stops"}
        assert (await waiting.next())["reason"] == "the server stops"
        assert (await waiting.closed())[0] == 1001
        assert await until(lambda: not house.door.tasks and not len(house.feed))
        assert loop.time() - began < 1.0
        late = await spoken(house, kind, {})
        assert [(await late())["type"], (await late())["type"]] == ["snapshot", "bye"]
        stuck.close()

    run(body)


def test_last_words_that_nobody_reads_do_not_keep_a_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """H39."""
    monkeypatch.setattr(outboxes, "ENTRIES", 10)
    monkeypatch.setattr(clients, "LINGER", 0.05)

    class Wire:
        """A connection whose buffer has room and whose client reads nothing."""

        def __init__(self) -> None:
            self.sent: list[dict[str, Any]] = []
            self.aborted = False

        def abort(self) -> None:
            self.aborted = True

        async def send(self, message: Any) -> None:
            self.sent.append(message)

        async def receive(self) -> Any:
            await until(lambda: self.aborted)
            return {"type": "http.disconnect"}

    async def body(house: House) -> None:
        house.log.open("s1")
        wire = Wire()
        scope = {"query_string": b"", "headers": [], "extensions": {"quell": {"transport": wire}}}
        hub = streams.Hub(house.feed, house.feed.board, house.log.read_rows)
        following = asyncio.create_task(streams.sse(hub)(scope, wire.receive, wire.send))
        assert await until(lambda: len(house.feed) == 1)
        house.log.say(*(said(0) for _ in range(20)))
        await following
        assert b"event: cut" in wire.sent[-2]["body"] and wire.sent[-1]["more_body"] is False and not wire.aborted
        assert await until(lambda: wire.aborted)

    run(body)


@BOTH
def test_a_connection_that_is_cut_while_nothing_is_sent_ends_without_a_complaint(run: Run, kind: str) -> None:
    async def body(house: House) -> None:
        house.log.open("s1")
        following = await spoken(house, kind, {})
        await following()
        for outbox in list(house.feed._outboxes):
            outbox.abort()
        assert await house.empty()

    run(body)


@BOTH
def test_a_client_that_vanishes_is_forgotten_though_nothing_happens(run: Run, kind: str) -> None:
    """H20: and nothing is stopped by it."""

    async def body(house: House) -> None:
        house.log.open("s1")
        if kind == "sse":
            reader = await (await house.sse("board=1")).begin()
            await reader.next()
            reader._writer.transport.abort()
        else:
            talker = await house.ws({"board": True})
            await talker.next()
            talker.connection.transport.abort()
        assert await house.empty()

    run(body)


def vanish(count: int) -> Callable[[House], Any]:
    async def body(house: House) -> None:
        house.log.open("s1", "s2")
        for first in range(0, count, 50):
            await asyncio.gather(*(come_and_go(house.port, number) for number in range(first, min(first + 50, count))))
            house.log.say(said(0), delta(0, "x", session="s2"))
        assert await house.empty()

    return body


def test_many_that_come_and_vanish_leave_nothing(run: Run) -> None:
    run(vanish(420))


@pytest.mark.soak
def test_very_many_that_come_and_vanish_leave_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.supervise.loops.BOUND", 300.0)
    run(vanish(10_000))


# -- the log


@BOTH
def test_while_the_runtime_is_busy_a_client_waits_for_what_it_misses(
    run: Run, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H25: it has the snapshot meanwhile."""
    monkeypatch.setattr(clients, "BUSY", 0.01)

    async def body(house: House) -> None:
        house.log.open("s1")
        house.log.say(said(0))
        busy = 10

        async def reading() -> None:
            nonlocal busy
            busy -= 1
            if busy > 0:
                raise BusyError("the runtime is busy")

        house.log.reading = reading
        following = await spoken(house, kind, {"after": 0, "board": True})
        assert (await following())["type"] == "snapshot"
        assert [one["seq"] for one in (await following())["events"]] == [1, 2]
        assert house.log.reads >= 10

    run(body)


@pytest.mark.parametrize("way", ["gone", "replaced", "ended"])
def test_who_waits_for_the_log_is_not_kept_from_ending(run: Run, way: str) -> None:
    async def body(house: House) -> None:
        house.log.open("s1")
        left: list[str] = []

        async def reading() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                left.append("left")

        house.log.reading = reading
        talker = await house.ws({"after": 0})
        assert await until(lambda: house.log.reads == 1)
        if way == "gone":
            await talker.leave()
            assert await house.empty()
        elif way == "replaced":
            await talker.say({"board": True, "events": False})
            assert (await talker.next())["type"] == "snapshot"
            await talker.leave()
        else:
            house.feed.end("enough")
            assert (await talker.next()) == {"type": "bye", "reason": "enough"}
            await talker.leave()
        assert left == ["left"]

    run(body)


def test_what_waits_in_an_outbox_is_not_sent_before_what_is_missing(run: Run) -> None:
    """H36: a client that never got the middle must not get the end, and go on from there."""

    async def body(house: House) -> None:
        house.log.open("s1")
        gate = asyncio.Event()

        async def reading() -> None:
            await gate.wait()

        house.log.reading = reading
        talker = await house.ws({"after": 0})
        assert await until(lambda: house.log.reads == 1)
        house.log.say(said(0))
        house.feed.end("enough")
        assert (await talker.next())["type"] == "bye"
        assert (await talker.closed())[0] == 1001

    run(body)


@pytest.mark.parametrize("error", [StoreError("the disk is gone"), TimeoutError("too long"), ValueError()])
def test_a_log_that_cannot_be_read_cuts_the_client_off_with_the_reason(run: Run, error: Exception) -> None:
    async def body(house: House) -> None:
        house.log.open("s1")

        async def reading() -> None:
            raise error

        house.log.reading = reading
        reader = await (await house.sse("after=0")).begin()
        message = await reader.next()
        assert message is not None and message.kind == "cut" and message.data["seq"] == 0
        assert message.data["reason"] == f"the log could not be read: {type(error).__name__}: {error}"
        assert await reader.next() is None
        await reader.leave()

    run(body)


# -- what is asked for


def test_a_further_message_replaces_what_is_followed(run: Run) -> None:
    async def body(house: House) -> None:
        house.log.open("s1", "s2")
        talker = await house.ws({"sessions": ["s1"]})
        assert (await talker.next())["type"] == "snapshot"
        await talker.say({"sessions": ["s2"], "after": house.log.last})
        assert await until(lambda: list(house.feed._of_session) == ["s2"])
        house.log.say(said(0), said(0, session="s2"))
        assert [one["session"] for one in (await talker.next())["events"]] == ["s2"]
        await talker.say({"after": 0})
        assert len((await talker.next())["events"]) == 4
        await talker.leave()

    run(body)


def test_what_is_asked_for_while_a_message_is_stuck_counts_when_it_is_through(run: Run) -> None:
    """And of several only the last."""

    async def body(house: House) -> None:
        house.log.open("s1")
        talker = await house.ws({"after": 0}, max_queue=1)
        assert (await talker.next())["type"] == "events"
        talker.connection.transport.pause_reading()
        sent = 0
        while not any(not one._woken and one._waiter is None for one in house.feed._outboxes) and sent < 200:
            house.log.say(said(0, "x" * 100_000))
            sent += 1
            await asyncio.sleep(0.002)
        for number in range(5):
            await talker.say({"sessions": ["s1"], "after": number})
        await talker.say({"board": True, "events": False})
        await asyncio.sleep(0.05)
        talker.connection.transport.resume_reading()
        kinds: list[str] = []
        while not kinds or kinds[-1] != "snapshot":
            kinds.append((await talker.next())["type"])
        assert set(kinds[:-1]) <= {"events"}
        house.log.say(said(0))
        assert (await talker.next())["type"] == "cards"
        await talker.leave()

    run(body)


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ("rubbish", 1008, "this does not say what to follow"),
        ("[]", 1008, "this does not say what to follow"),
        ("", 1008, "this does not say what to follow"),
        ({"sessions": "s1"}, 1008, "this does not say what to follow"),
        ({"wishes": 1}, 1008, "this does not say what to follow"),
        ({"after": -1}, 1008, "this does not say what to follow: `after`"),
        ({"after": 1 << 60}, 1008, "this does not say what to follow: `after`"),
        ({"after": True}, 1008, "this does not say what to follow"),
        ({"sessions": ["x"] * 1001}, 1008, "this does not say what to follow: at most 1000"),
        ({"sessions": [""]}, 1008, "this does not say what to follow: a session is named"),
        ({"sessions": ["ü" * 300]}, 1008, "this does not say what to follow"),
        ("[" * 5000, 1008, "this does not say what to follow"),
        (b'{"after": 0}', 1003, "only text"),
        ({"sessions": ["x" * 70_000]}, 1009, ""),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_what_cannot_be_understood_is_refused_with_a_sentence(
    run: Run, words: object, code: int, reason: str, later: bool
) -> None:
    async def body(house: House) -> None:
        talker = await house.ws({"board": True} if later else None)
        if later:
            await talker.next()
        await talker.say(words)
        assert (await talker.closed())[0] == code
        assert (await talker.closed())[1].startswith(reason)

    run(body)


def test_whoever_says_nothing_is_sent_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FIRST_LIMIT", 0.05)

    async def body(house: House) -> None:
        silent, quick = await house.ws(), await house.ws({})
        assert await silent.closed() == (1008, "nothing was asked for within 0.05 s: say what to follow")
        assert (await quick.next())["type"] == "snapshot"
        await asyncio.sleep(0.1)
        house.log.open("s1")
        assert (await quick.next())["type"] == "events"
        await quick.leave()

    run(body)


@pytest.mark.parametrize(
    "query",
    [
        *("after=x", "after=-1", "after=", "after=1.0", "after=99999999999999999", "board=2", "events=no", "session="),
        "&".join(["session=x"] * 1001),
    ],
)
def test_an_address_that_makes_no_sense_is_a_fault(run: Run, query: str) -> None:
    async def body(house: House) -> None:
        reader = await (await house.sse(query)).begin()
        assert reader.status == 400 and reader.head["content-type"] == "application/json"
        assert json.loads(await reader.body())["code"] == "bad_request"
        await reader.leave()
        reader = await (await house.sse("", "Last-Event-ID: soon")).begin()
        assert reader.status == 400
        await reader.leave()

    run(body)


def test_pings_are_answered_and_half_a_message_is_no_message(run: Run) -> None:
    async def body(house: House) -> None:
        house.log.open("s1")
        talker = await house.ws()
        async with asyncio.timeout(BOUND):
            await (await talker.connection.ping())
            await talker.connection.send(iter(['{"boa', 'rd": tr', "ue}"]))
        assert (await talker.next())["type"] == "snapshot"
        await talker.leave()

    run(body)


def test_an_idle_client_is_no_task_of_ours_but_the_servers_one(run: Run) -> None:
    async def body(house: House) -> None:
        house.log.open("s1")
        before = len(asyncio.all_tasks())
        readers: list[Reader] = [await (await house.sse("board=1")).begin() for _ in range(5)]
        for reader in readers:
            await reader.next()
        assert len(asyncio.all_tasks()) - before == len(house.door.tasks) == 5
        for reader in readers:
            await reader.leave()
        assert await house.empty()
        assert len(asyncio.all_tasks()) == before

    run(body)


def test_a_session_that_is_opened_is_on_the_board_of_whoever_watches(run: Run) -> None:
    async def body(house: House) -> None:
        reader = await (await house.sse("board=1&events=0")).begin()
        first = await reader.next()
        assert first is not None and first.data["sessions"] == []
        house.log.say(SessionOpened(session="s1", title="new"))
        second = await reader.next()
        assert second is not None and second.kind == "cards" and second.id is None
        assert [one["title"] for one in second.data["cards"]] == ["new"]
        await reader.leave()

    run(body)
